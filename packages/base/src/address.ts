/** The address of a service, `host:port`, and its parser. */

export interface Address {
  /** A name or an IP address, without brackets. */
  readonly host: string;
  readonly port: number;
}

const HOST_NAME = /^(?!-)[A-Za-z0-9-]{1,63}(?<!-)(?:\.(?!-)[A-Za-z0-9-]{1,63}(?<!-))*$/;
const IPV4 = /^(?:(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)(?:\.(?!$)|$)){4}$/;

/** Undefined: not an address. An IPv6 address needs brackets. */
export function parseAddress(text: string): Address | undefined {
  const match = /^(?:\[([^\]]+)\]|([^:[\]]+)):(\d{1,5})$/.exec(text);
  const [, bracketed, plain = "", digits] = match ?? [];
  const port = Number(digits);
  if (match === null || port > 65_535) return undefined;
  if (bracketed !== undefined) return isIpv6(bracketed) ? { host: bracketed, port } : undefined;
  // A last label of digits only means an IPv4 address, so "256.0.0.1" is no name either.
  const isName = HOST_NAME.test(plain) && !/(?:^|\.)\d+$/.test(plain);
  return isName || IPV4.test(plain) ? { host: plain, port } : undefined;
}

/** The form of the environment and of a gRPC target. */
export function addressText({ host, port }: Address): string {
  return host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;
}

/** Accepts a zone (`fe80::1%eth0`), which the machine understands and a URL parser does not. */
function isIpv6(text: string): boolean {
  return URL.canParse(`http://[${text.replace(/%[\w.-]+$/, "")}]/`);
}

/**
 * Web origins as browsers send them, separated by commas; undefined where one is spelled otherwise.
 * `*` is no origin: without tokens every page that a user opens could read and change the sessions.
 */
export function parseOrigins(text: string): readonly string[] | undefined {
  const origins = text.split(",").map((origin) => origin.trim());
  return origins.every(isOrigin) ? origins : undefined;
}

/** A URL may have the host `*.example`, which no browser sends. */
function isOrigin(text: string): boolean {
  const url = URL.parse(text);
  const isWeb = url?.protocol === "http:" || url?.protocol === "https:";
  return isWeb && url.origin === text && !text.includes("*");
}
