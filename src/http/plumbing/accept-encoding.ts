/**
 * Whether an answer may be compressed with gzip, by an Accept-Encoding (RFC 9110, section 12.5.3).
 * It may when the weight of gzip is at least that of no compression. A part that cannot be parsed
 * counts as not accepted. When no encoding is accepted at all, the answer goes out uncompressed, as
 * the section recommends.
 */
export function acceptsGzip(header: string | undefined): boolean {
  if (header === undefined) return false;
  const weights = weightsOf(header);
  const any = weights.get("*");
  const gzip = weights.get("gzip") ?? weights.get("x-gzip") ?? any ?? 0;
  return gzip > 0 && gzip >= (weights.get("identity") ?? 0);
}

/** 0 to 1 with at most three decimals. */
const WEIGHT = /^(?:0(?:\.\d{0,3})?|1(?:\.0{0,3})?)$/;

function weightsOf(header: string): ReadonlyMap<string, number> {
  const weights = new Map<string, number>();
  for (const part of header.split(",")) {
    const [coding = "", ...parameters] = part.split(";").map((text) => text.trim().toLowerCase());
    const weight = parameters.find((parameter) => parameter.startsWith("q="))?.slice(2) ?? "1";
    weights.set(coding, WEIGHT.test(weight) ? Number(weight) : 0);
  }
  return weights;
}
