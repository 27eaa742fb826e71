import { fileRefused } from "./watched-file.ts";

export interface FetchLimits {
  readonly signal: AbortSignal;
  readonly bytesMax: number;
}

/**
 * Reads the body at a URL. It follows no redirect: a person who controls the redirect could change
 * the keys, so the setting must name the final URL.
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
    // The connection of an answer that was not read to its end must be closed.
    await response.body?.cancel().catch(() => undefined);
  }
}
