import { fileRefused } from "./watched-file.ts";

export interface FetchLimits {
  readonly signal: AbortSignal;
  readonly bytesMax: number;
}

/**
 * The body at a URL. No redirect is followed: who may change where one leads may change the keys, and
 * the setting should name the place itself.
 */
export async function fetchText(url: string, { signal, bytesMax }: FetchLimits): Promise<string> {
  const response = await fetch(url, {
    signal,
    redirect: "manual",
    headers: { accept: "application/jwk-set+json, application/json" },
  });
  try {
    if (response.status !== 200) {
      throw fileRefused(`expected status 200, got ${response.status}; redirects are not followed`);
    }
    const chunks: Uint8Array[] = [];
    let bytes = 0;
    for await (const chunk of response.body ?? []) {
      bytes += chunk.byteLength;
      if (bytes > bytesMax) throw fileRefused(`expected at most ${bytesMax} bytes`);
      chunks.push(chunk);
    }
    return Buffer.concat(chunks).toString("utf8");
  } finally {
    // Of an answer that was not read to its end, the connection must not stay.
    await response.body?.cancel().catch(() => undefined);
  }
}
