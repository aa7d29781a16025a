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
  h4: { role: "heading", "aria-level": "2" },
  h5: { role: "heading", "aria-level": "3" },
};
const name = () => {
  if (!document.querySelector(".responses-table")) return requestAnimationFrame(name);
  for (const [selector, attributes] of Object.entries(NAMES))
    for (const each of document.querySelectorAll(selector))
      for (const [attribute, value] of Object.entries(attributes)) each.setAttribute(attribute, value);
};

// The example as a command and in two languages, to be copied.
const samples = (url, body) => ({
  curl: `curl ${url} \\
  -H 'X-Api-Key: KEY' \\
  -H 'Content-Type: application/json' \\
  -d '${body}'`,
  Python: `import json, urllib.request

url = "${url}"
body = ${body}
headers = {
  "X-Api-Key": "KEY",
  "Content-Type": "application/json"
}
data = json.dumps(body).encode()
request = urllib.request.Request(url, data, headers)
print(urllib.request.urlopen(request).read().decode())`,
  JavaScript: `const url = "${url}";
const body = ${body};
const headers = {
  "X-Api-Key": "KEY",
  "Content-Type": "application/json"
};
const answer = await fetch(url, {
  method: "POST", headers, body: JSON.stringify(body)
});
console.log(await answer.text());`,
});
const element = (name, text, attributes = {}) =>
  Object.assign(document.createElement(name), { textContent: text }, attributes);
const show = (url, body) => {
  for (const [name, code] of Object.entries(samples(url, body)))
    document.querySelector("#samples").append(element("h2", name), element("pre", code, { tabIndex: 0 }));
};

// All addresses are relative: the page also works below a stage's prefix.
fetch("openapi.json")
  .then((response) => response.json())
  .then((spec) => {
    const path = "/v1/text-messages";
    const { post } = spec.paths[path];
    post.requestBody.description = fields(spec.components.schemas.TextMessageRequest);
    post.responses[201].description += `\n${fields(spec.components.schemas.TextMessageResponse)}`;
    const { 201: created, ...errors } = post.responses; // one row for all errors: their body is the same
    const error = ({ $ref }) => spec.components.responses[$ref.split("/").at(-1)];
    const told = Object.entries(errors).map(([code, each]) => `\n- \`${code}\`: ${error(each).description}`);
    post.responses = {
      201: created,
      default: { ...error(errors[400]), description: `Every error has this body.\n${told.join("")}` },
    };
    spec.servers[0].url = new URL(".", location).href.replace(/\/$/, ""); // this page's own, also where PUBLIC_URL is another
    show(spec.servers[0].url + path, JSON.stringify(post.requestBody.content["application/json"].examples.now.value, null, 2));
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
