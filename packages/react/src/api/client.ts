/** Calls of the public HTTP API, with the token of a connection. */
import type { Connection } from "./connection.ts";
import { ApiError, NoAnswer, type Violation } from "./errors.ts";

export const API = "/api/ambient/v1";

export type Query = Readonly<
  Record<string, string | number | boolean | readonly string[] | undefined>
>;

export interface CallOptions {
  readonly query?: Query;
  readonly signal?: AbortSignal;
  readonly headers?: Readonly<Record<string, string>>;
}

export function addressOf(path: string, query: Query = {}): string {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value === undefined) continue;
    for (const one of [value].flat()) parameters.append(name, String(one));
  }
  return parameters.size === 0 ? path : `${path}?${parameters.toString()}`;
}

/** `path` begins at the URL of the connection: `${API}/sessions`, `/openapi.json`. */
export async function get<T>(
  connection: Connection,
  path: string,
  options: CallOptions = {},
): Promise<T> {
  return await json<T>(await call(connection, addressOf(path, options.query), options));
}

export async function post<T>(
  connection: Connection,
  path: string,
  body: unknown,
  options: CallOptions = {},
): Promise<T> {
  return await json<T>(await send(connection, "POST", path, { ...options, body }));
}

/** Changes something; `body` is left out when it is undefined. */
export async function send(
  connection: Connection,
  method: "POST" | "PUT" | "PATCH" | "DELETE",
  path: string,
  { body, ...options }: CallOptions & { readonly body?: unknown } = {},
): Promise<Response> {
  const hasBody = body !== undefined;
  const headers = { ...(hasBody && { "content-type": "application/json" }), ...options.headers };
  const init = { method, ...(hasBody && { body: JSON.stringify(body) }) };
  return await call(connection, addressOf(path, options.query), { ...options, headers, init });
}

/** The answer of a success. A call that is refused for lack of a token is repeated with one. */
export async function call(
  connection: Connection,
  address: string,
  { signal, headers, init = {} }: Omit<CallOptions, "query"> & { readonly init?: RequestInit },
): Promise<Response> {
  // The reader sends something.
  if (init.method !== undefined) connection.mayAskAgain();
  for (let attempts = 1; ; attempts += 1) {
    const token = await connection.token();
    const authorization = token === undefined ? {} : { authorization: `Bearer ${token}` };
    const response = await fetch(`${connection.url}${address}`, {
      ...init,
      headers: { ...headers, ...authorization },
      credentials: "omit",
      cache: "no-store",
      ...(signal && { signal }),
    }).catch((error: unknown) => {
      if (signal?.aborted === true) throw error;
      throw new NoAnswer(error);
    });
    if (response.ok) return response;
    const error = await errorOf(response);
    if (response.status !== 401 || attempts >= connection.attemptsMax) throw error;
    if ((await connection.anotherToken(token)) === undefined) throw error;
    signal?.throwIfAborted();
  }
}

async function json<T>(response: Response): Promise<T> {
  const value: T = await response.json();
  return value;
}

interface Problem {
  readonly title?: string;
  readonly detail?: string;
  readonly reason?: string;
  readonly violations?: readonly Violation[];
}

async function errorOf(response: Response): Promise<ApiError> {
  const text = await response.text().catch(() => "");
  const problem = parsed(text);
  const fallback = `${response.status} ${response.statusText}`.trim();
  return new ApiError(response.status, problem.detail ?? problem.title ?? fallback, {
    reason: problem.reason ?? "",
    violations: problem.violations ?? [],
  });
}

function parsed(text: string): Problem {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null ? value : {};
  } catch {
    return {};
  }
}
