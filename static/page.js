// Every address is relative, so that the page works below a stage's prefix too.
SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#page",
  docExpansion: "full",
  validatorUrl: null, // nobody else is told
});
