import { readFileSync } from "node:fs";
import { findPackageJSON } from "node:module";

export function packageVersion(): string {
  const path = findPackageJSON("..", import.meta.url);
  const described: unknown = path === undefined ? {} : JSON.parse(readFileSync(path, "utf8"));
  return typeof described === "object" && described !== null && "version" in described
    ? String(described.version)
    : "unknown";
}
