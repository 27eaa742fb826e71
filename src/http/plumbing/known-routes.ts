import { HttpRefusal } from "./problem.ts";

interface Known {
  readonly pattern: RegExp;
  readonly methods: Set<string>;
}

/**
 * The served routes, to distinguish a wrong method from a wrong path, which the framework cannot
 * do.
 */
export class KnownRoutes {
  readonly #byUrl = new Map<string, Known>();

  add(method: string | readonly string[], url: string): void {
    const known = this.#byUrl.get(url) ?? { pattern: patternOf(url), methods: new Set() };
    this.#byUrl.set(url, known);
    for (const one of [method].flat()) known.methods.add(one);
  }

  /** For a request without a route: 405 where another method exists, else 404. */
  refusalOf(method: string, url: string): HttpRefusal {
    const path = url.split("?", 1)[0] ?? "";
    const methods = [...this.#byUrl.values()]
      .filter(({ pattern }) => pattern.test(path))
      .flatMap((known) => [...known.methods]);
    if (methods.length === 0) {
      return new HttpRefusal(404, "there is nothing at this path", { code: "not_found" });
    }
    const allow = [...new Set(methods)].toSorted().join(", ");
    return new HttpRefusal(405, `${method} is not for this path, but ${allow}`, {
      code: "unimplemented",
      headers: { allow },
    });
  }
}

/** For a registered path: text, `:name` for a segment, `*` for the rest. */
function patternOf(url: string): RegExp {
  const source = url
    .split("/")
    .map((segment) => {
      if (segment.startsWith(":")) return "[^/]+";
      if (segment === "*") return ".*";
      return segment.replaceAll(/[.*+?^${}()|[\]\\]/g, String.raw`\$&`);
    })
    .join("/");
  return new RegExp(`^${source}$`);
}
