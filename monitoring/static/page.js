// Show openapi.json, rearranged for people.
const fields = ({ properties }) =>
  Object.entries(properties).map(([name, { description }]) => `\n- \`${name}\`: ${description}`).join("");

// All addresses are relative: the page also works below a stage's prefix.
fetch("openapi.json")
  .then((response) => response.json())
  .then((spec) => {
    const { post } = spec.paths["/v1/text-messages"];
    post.description += `\n${fields(post.requestBody.content["application/json"].schema)}`;
    post.responses[201].description += `\n${fields(spec.components.schemas.TextMessageResponse)}`;
    spec.servers[0].url = new URL(".", location).href.replace(/\/$/, ""); // the address instead of a dot
    spec.security = [{ ApiKey: [] }]; // one box for the one key
    delete spec.components.securitySchemes.Bearer;
    SwaggerUIBundle({
      spec,
      dom_id: "#page",
      docExpansion: "full",
      defaultModelsExpandDepth: -1, // they repeat the fields above
      validatorUrl: null, // no external validator
    });
  });
