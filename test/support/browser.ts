/** A page in a real Chromium: it runs a script of a test, and reports to the server that served it. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { toolPath } from "./tools.ts";

/** Without its sandbox root may start it; a port for a debugger keeps it open. */
const CHROMIUM_FLAGS = [
  "--headless",
  "--no-sandbox",
  "--disable-gpu",
  "--disable-dev-shm-usage",
  "--remote-debugging-port=0",
];

export interface PageServer extends AsyncDisposable {
  readonly port: number;
  /** Serves the script as a page at this host name, and resolves with the value it reports. */
  run(script: string, host: string): Promise<unknown>;
}

/**
 * The page has `report(value)`. A script is the body of an async function; an error that it throws is
 * reported as `{ error }`.
 */
export async function startPages(): Promise<PageServer> {
  let page = "";
  let reported = Promise.withResolvers<unknown>();
  const server = createServer((request, response) => {
    if (request.method !== "POST") {
      response.setHeader("content-type", "text/html; charset=utf-8").end(page);
      return;
    }
    void text(request)
      .then((body) => {
        response.end();
        return reported.resolve(JSON.parse(body));
      })
      .catch(reported.reject);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("no port");
  const { port } = address;
  return {
    port,
    async run(script, host) {
      reported = Promise.withResolvers();
      page = `<!doctype html><meta charset="utf-8"><script type="module">
        const report = (value) => fetch("/report", { method: "POST", body: JSON.stringify(value) });
        try { await report(await (async () => { ${script.replaceAll("</script", "<\\/script")} })()); }
        catch (error) { await report({ error: String(error) }); }
      </script>`;
      return inChromium(`http://${host}:${port}/`, reported.promise);
    },
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      server.close();
      await once(server, "close");
    },
  };
}

async function inChromium(url: string, reported: Promise<unknown>): Promise<unknown> {
  const profile = await mkdtemp(join(tmpdir(), "session-ledger-browser-"));
  const flags = [...CHROMIUM_FLAGS, `--user-data-dir=${profile}`, url];
  const browser = spawn(toolPath("chromium"), flags, { stdio: "ignore" });
  const ended = once(browser, "exit");
  try {
    const early = ended.then(([code]) => Promise.reject(new Error(`chromium ended with ${code}`)));
    return await Promise.race([reported, early]);
  } finally {
    browser.kill("SIGKILL");
    await ended;
    await rm(profile, { recursive: true, force: true, maxRetries: 5 });
  }
}
