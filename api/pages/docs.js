"use strict";

// Everything is put in as text, never as HTML: the document is ours, but it costs nothing to be sure.
function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  for (const child of children) if (child !== null) node.append(child);
  return node;
}

// `code` in descriptions is the only markup they use.
function prose(text) {
  const line = make("span");
  (text || "").split("`").forEach((part, index) => line.append(index % 2 ? make("code", {}, part) : part));
  return line;
}

const schemaName = (ref) => ref.split("/").pop();

function typeOf(schema) {
  if (!schema) return "";
  if (schema.$ref) {
    const name = schemaName(schema.$ref);
    return make("a", { href: `#schema-${name}` }, name);
  }
  const options = schema.anyOf || schema.oneOf;
  if (options) return joined(options.map(typeOf), " or ");
  if (schema.const !== undefined) return make("code", {}, String(schema.const));
  if (schema.enum) return joined(schema.enum.map((value) => make("code", {}, value)), ", ");
  if (schema.type === "array") return joined(["list of ", typeOf(schema.items)], "");
  return schema.format ? `${schema.type} (${schema.format})` : schema.type || "any";
}

function joined(parts, between) {
  const line = make("span");
  parts.forEach((part, index) => line.append(...(index && between ? [between] : []), part));
  return line;
}

function limits(schema) {
  const names = {
    minimum: "at least", maximum: "at most", exclusiveMinimum: "more than", exclusiveMaximum: "less than",
    maxLength: "characters, at most", maxItems: "items, at most",
  };
  const found = [schema, ...(schema.anyOf || [])].flatMap((one) =>
    Object.entries(names).filter(([key]) => one[key] !== undefined).map(([key, words]) => `${words} ${one[key]}`));
  if (schema.default !== undefined && schema.default !== null) found.push(`default ${JSON.stringify(schema.default)}`);
  return found.length ? make("div", { class: "soft" }, found.join("; ")) : null;
}

function table(heads, rows) {
  return make("table", {},
    make("thead", {}, make("tr", {}, ...heads.map((head) => make("th", {}, head)))),
    make("tbody", {}, ...rows.map((cells) => make("tr", {}, ...cells.map((cell) => make("td", {}, cell))))));
}

function operation(path, method, described) {
  const box = make("article", { id: described.operationId },
    make("h3", {}, make("span", { class: `method ${method}` }, method.toUpperCase()), make("code", {}, path)),
    make("p", {}, prose(described.summary + ". " + (described.description || ""))));
  if (described.parameters) {
    box.append(make("h4", {}, "Parameters"), table(["name", "in", "what"], described.parameters.map((one) => [
      make("code", {}, one.name), one.in, joined([prose(one.description), limits(one.schema) || ""], " "),
    ])));
  }
  if (described.requestBody) {
    box.append(make("h4", {}, "Body"), table(["as", "what"],
      Object.entries(described.requestBody.content).map(([type, body]) => [make("code", {}, type), typeOf(body.schema)])));
  }
  box.append(make("h4", {}, "Answers"), table(["status", "as", "what"],
    Object.entries(described.responses).map(([status, answer]) => [
      make("code", {}, status),
      joined(Object.entries(answer.content || {}).map(([type, body]) =>
        body.schema.$ref ? typeOf(body.schema) : make("code", {}, type)), ", "),
      prose(answer.description),
    ])));
  return box;
}

function schema(name, described) {
  const needed = new Set(described.required || []);
  return make("article", { id: `schema-${name}` },
    make("h3", {}, name),
    make("p", {}, prose(described.description)),
    table(["field", "type", "what"], Object.entries(described.properties || {}).map(([field, one]) => [
      joined([make("code", {}, field), needed.has(field) ? make("span", { class: "soft" }, " (always)") : ""], ""),
      typeOf(one), joined([prose(one.description), limits(one) || ""], " "),
    ])));
}

function show(api) {
  const here = location.origin;
  document.getElementById("version").textContent = api.info.version;
  document.getElementById("description").textContent = api.info.description;
  document.getElementById("example").textContent = [
    `curl -s ${here}/v1/jobs -H 'Content-Type: application/json' \\`,
    `  -d '{"type": "tts", "text": "Hello from Stagewave.", "live": true}'`,
    `curl -s ${here}/v1/jobs/JOB_ID?wait=30`,
    `curl -s ${here}/v1/jobs/JOB_ID/audio -o hello.wav`,
  ].join("\n");

  const contents = document.getElementById("contents");
  const operations = document.getElementById("operations");
  for (const { name: tag } of api.tags) {
    const list = make("ul");
    operations.append(make("h2", {}, tag));
    for (const [path, methods] of Object.entries(api.paths)) {
      for (const [method, described] of Object.entries(methods)) {
        if (!described.tags.includes(tag)) continue;
        operations.append(operation(path, method, described));
        list.append(make("li", {}, make("a", { href: `#${described.operationId}` }, described.summary)));
      }
    }
    contents.append(make("strong", {}, tag), list);
  }
  for (const [name, described] of Object.entries(api.components.schemas)) {
    document.getElementById("schemas").append(schema(name, described));
  }
  const errors = document.querySelector("#errors tbody");
  for (const error of api["x-errors"]) {
    errors.append(make("tr", { id: `error-${error.code}` }, make("td", {}, make("code", {}, error.code)),
      make("td", {}, String(error.status)), make("td", {}, error.retryable ? "yes" : "no")));
  }
  contents.append(make("ul", {}, ...["schemas", "errors"].map((id) => make("li", {}, make("a", { href: `#${id}` }, id)))));
  if (location.hash) document.getElementById(decodeURIComponent(location.hash.slice(1)))?.scrollIntoView();
}

fetch("/openapi.json")
  .then((answer) => answer.json())
  .then(show)
  .catch(() => document.getElementById("operations").append("openapi.json could not be loaded."));
