/**
 * The inspector: a page made from `web/`, served as files without a token. It calls the public API
 * with its reader's token.
 */
import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import type { FastifyReply } from "fastify";
import { nothingHere } from "./plumbing/problem.ts";
import type { App } from "./plumbing/app.ts";

/** Beside the bundle, or, when the service runs from its sources, in the bundle's folder. */
const FOLDERS = ["web", "../../dist/web"].map((path) => join(import.meta.dirname, path));

/** The addresses of the page; it shows what its address names. */
const PAGES = ["/", "/inbox", "/sessions/:id", "/sessions/:id/compare"] as const;

/** Nothing but the files of this port, and calls to it; nobody may frame the page. */
const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' data:",
  "font-src 'self'",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join("; ");

const HEADERS = {
  "content-security-policy": POLICY,
  "referrer-policy": "no-referrer",
  "cross-origin-opener-policy": "same-origin",
} as const;

/** The name of such a file has a hash of its content. */
const FOREVER_MS = 365 * 24 * 3_600_000;

/** The form of the names that the build makes: no folder, and nothing above this one. */
const NAME = /^\w[\w.-]*$/;

const HIDDEN = { schema: { hide: true } } as const;

/** The package that serves files is loaded here: without the page a start does not pay for it. */
export async function inspectorRoutes(app: App): Promise<void> {
  const { default: files } = await import("@fastify/static");
  const root = rootFolder();
  await app.register(files, { root, serve: false, preCompressed: true, suppressWarning: true });
  // For a missing file.
  app.setNotFoundHandler(() => {
    throw nothingHere();
  });
  for (const path of PAGES) app.get(path, HIDDEN, (_request, reply) => sendPage(reply));
  app.get<{ Params: { file: string } }>("/assets/:file", HIDDEN, ({ params: { file } }, reply) => {
    if (!NAME.test(file)) throw nothingHere();
    return reply
      .headers(HEADERS)
      .sendFile(`assets/${file}`, { maxAge: FOREVER_MS, immutable: true });
  });
}

function rootFolder(): string {
  return FOLDERS.find((folder) => existsSync(folder)) ?? join(import.meta.dirname, "web");
}

/** For a person: the page names the unknown address, and has a link to all sessions. */
export async function sendUnknownPage(reply: FastifyReply): Promise<FastifyReply> {
  const html = await readFile(join(rootFolder(), "index.html"));
  const headers = { ...HEADERS, "cache-control": "no-cache" };
  return reply.code(404).headers(headers).type("text/html; charset=utf-8").send(html);
}

/** Asked for again each time, and then mostly answered by its ETag. */
function sendPage(reply: FastifyReply): FastifyReply {
  return reply
    .headers({ ...HEADERS, "cache-control": "no-cache" })
    .sendFile("index.html", { cacheControl: false });
}
