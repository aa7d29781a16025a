// Show openapi.json, rearranged for people.
const fields = ({ properties }) =>
  Object.entries(properties).map(([name, { description }]) => `\n- \`${name}\`: ${description}`).join("");

// Swagger UI has colors for the dark, which a class turns on.
const dark = matchMedia("(prefers-color-scheme: dark)");
const paint = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
dark.addEventListener("change", paint);
paint();

// Names and roles that Swagger UI leaves out, once it has drawn the page.
const NAMES = {
  "#servers": { "aria-label": "Server" },
  ".examples-select-element": { "aria-label": "Example" },
  ".information-container": { role: "region", "aria-label": "About" },
  ".schemes-server-container": { role: "region", "aria-label": "Server and key" },
  h3: { role: "heading", "aria-level": "2" },
  h4: { role: "heading", "aria-level": "3" },
  h5: { role: "heading", "aria-level": "4" },
};
const name = () => {
  if (!document.querySelector(".responses-table")) return requestAnimationFrame(name);
  for (const [selector, attributes] of Object.entries(NAMES))
    for (const each of document.querySelectorAll(selector))
      for (const [attribute, value] of Object.entries(attributes)) each.setAttribute(attribute, value);
};

// All addresses are relative: the page also works below a stage's prefix.
fetch("openapi.json")
  .then((response) => response.json())
  .then((spec) => {
    const { post } = spec.paths["/v1/text-messages"];
    post.description += `\n${fields(spec.components.schemas.TextMessageRequest)}`;
    post.responses[201].description += `\n${fields(spec.components.schemas.TextMessageResponse)}`;
    spec.servers[0].url = new URL(".", location).href.replace(/\/$/, ""); // this page's own, also where PUBLIC_URL is another
    spec.security = [{ ApiKey: [] }]; // one box for the one key
    delete spec.components.securitySchemes.Bearer;
    delete spec.webhooks; // nobody can try one, and docs/events.md describes them better
    SwaggerUIBundle({
      spec,
      dom_id: "#page",
      docExpansion: "full",
      defaultModelsExpandDepth: -1, // they repeat the fields above
      validatorUrl: null, // no external validator
      onComplete: name,
    });
  });
