// The same as python_clients.py for the SDK in TypeScript: node typescript_client.mjs FOLDER 1|2, a plan on stdin.
import { createRequire } from "node:module";
import { text } from "node:stream/consumers";
import { join } from "node:path";

const [folder, version] = process.argv.slice(2);
const need = createRequire(join(folder, "package.json"));
const parts =
  version === "1"
    ? ["@modelcontextprotocol/sdk/client/index.js", "@modelcontextprotocol/sdk/client/stdio.js",
       "@modelcontextprotocol/sdk/client/streamableHttp.js"]
    : ["@modelcontextprotocol/client", "@modelcontextprotocol/client/stdio"];
const { Client, StdioClientTransport, StreamableHTTPClientTransport } = Object.assign({}, ...parts.map(need));

const { server, steps } = JSON.parse(await text(process.stdin));
const transport = server.url
  ? new StreamableHTTPClientTransport(new URL(server.url))
  : new StdioClientTransport({ command: server.command[0], args: server.command.slice(1), env: server.env, stderr: "ignore" });
const client = new Client({ name: "client", version: "1" });
await client.connect(transport);

async function call(step, options) {
  const wanted = { name: step.tool, arguments: step.arguments };
  const result = await (version === "1" ? client.callTool(wanted, undefined, options) : client.callTool(wanted, options));
  const said = result.content.map((part) => (part.type === "text" ? part.text : `<${part.type}>`)).join("\n");
  if (result.isError) throw new Error(said);
  return result.structuredContent ? [said, JSON.stringify(result.structuredContent)] : [said];
}

async function answer(step) {
  if (step.tool === null) {
    const { tools } = await client.listTools();
    return { tools: Object.fromEntries(tools.map((one) => [one.name, one.inputSchema])) };
  }
  if (step.cancel_after_s === null) return { forms: await call(step, { timeout: 60_000 }) };
  const controller = new AbortController();
  const timer = setTimeout(() => controller.abort("not wanted"), step.cancel_after_s * 1000);
  try {
    return { forms: await call(step, { signal: controller.signal }) };
  } catch (error) {
    return { cancelled: controller.signal.aborted, error: String(error) };
  } finally {
    clearTimeout(timer);
  }
}

for (const step of steps) {
  const begun = performance.now();
  const said = await answer(step).catch((error) => ({ error: String(error) }));
  const seconds = (performance.now() - begun) / 1000;
  process.stdout.write(JSON.stringify({ step: step.name, seconds, ...said }) + "\n");
}
await client.close();
