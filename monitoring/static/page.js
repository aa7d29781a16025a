// Show openapi.json, arranged for a person; it is itself for programs.
const fields = ({ properties }) =>
  Object.entries(properties).map(([name, { description }]) => `\n- \`${name}\`: ${description}`).join("");

// Every address is relative, so that the page works below a stage's prefix too.
fetch("openapi.json")
  .then((response) => response.json())
  .then((spec) => {
    const { post } = spec.paths["/v1/text-messages"];
    post.description += `\n${fields(post.requestBody.content["application/json"].schema)}`;
    post.responses[201].description += `\n${fields(spec.components.schemas.TextMessageResponse)}`;
    spec.servers[0].url = new URL(".", location).href.replace(/\/$/, ""); // a name instead of a dot
    spec.security = [{ ApiKey: [] }]; // one box for the one key
    delete spec.components.securitySchemes.Bearer;
    SwaggerUIBundle({
      spec,
      dom_id: "#page",
      docExpansion: "full",
      defaultModelsExpandDepth: -1, // the same again
      validatorUrl: null, // nobody else is told
    });
  });
