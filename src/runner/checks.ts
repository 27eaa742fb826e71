/**
 * Checks the values that a caller passed. Programs without types, and types that were widened, may
 * pass anything. Each check throws with the option's name, before any work begins.
 */
import { parseAddress } from "../base/address.ts";
import { isSendable } from "./credentials.ts";

const SESSION_ID = /^(?!\.{1,2}$)[A-Za-z0-9._:-]{1,128}$/;

/** An object with no properties but these; a misspelled option would otherwise count as absent. */
export function checkObject(name: string, value: unknown, keys: readonly string[]): void {
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new TypeError(`${name} must be an object`);
  }
  const unknown = Object.keys(value).find((key) => !keys.includes(key));
  if (unknown === undefined) return;
  throw new TypeError(`${name} has no ${JSON.stringify(unknown)}; it knows ${keys.join(", ")}`);
}

export function checkAddress(value: unknown): void {
  const address = typeof value === "string" ? parseAddress(value) : undefined;
  if (address !== undefined && address.port > 0) return;
  throw new TypeError("address must be host:port, like 127.0.0.1:9000 or [::1]:9000");
}

export function checkSessionId(value: unknown): void {
  if (typeof value === "string" && SESSION_ID.test(value)) return;
  throw new TypeError("sessionId must be 1 to 128 bytes of [A-Za-z0-9._:-], not . or ..");
}

/** The error never quotes the token. */
export function checkToken(value: unknown): void {
  if (value === undefined || typeof value === "function") return;
  if (typeof value === "string" && isSendable(value)) return;
  throw new TypeError(
    "token must be a function, or a text that a header can hold: printable ASCII, not empty",
  );
}

export function checkTls(value: unknown): void {
  if (value === undefined || typeof value === "boolean") return;
  checkObject("tls", value, ["ca", "cert", "key"]);
  const parts = typeof value === "object" && value !== null ? Object.entries(value) : [];
  const wrong = parts.find(
    ([, pem]) => pem !== undefined && (typeof pem !== "string" || pem === ""),
  );
  if (wrong !== undefined) throw new TypeError(`tls.${wrong[0]} must be a text in PEM`);
}

export function checkOneOf(name: string, value: unknown, allowed: readonly string[]): void {
  if (value === undefined || allowed.some((one) => one === value)) return;
  const names = allowed.map((one) => JSON.stringify(one)).join(" or ");
  throw new TypeError(`${name} must be ${names}`);
}

export function checkType(
  name: string,
  value: unknown,
  type: "function" | "boolean" | "bigint",
): void {
  if (value === undefined || typeof value === type) return;
  throw new TypeError(`${name} must be a ${type}`);
}

export function checkFile(name: string, value: unknown): void {
  if (value === undefined || (typeof value === "string" && value !== "")) return;
  throw new TypeError(`${name} must be the path of a file`);
}
