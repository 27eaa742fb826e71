/**
 * Tokens that the operator configures, `{"tokens":[{"id","token" or
 * "tokenSha256","roles","project"?}]}`. The time of a comparison reveals nothing: tokens are looked
 * up by their SHA-256, which a sender cannot control, and the bytes of a found digest are compared
 * in constant time. Short tokens are refused.
 */
import { hash, timingSafeEqual } from "node:crypto";
import { z } from "zod";
import type { Unit } from "../base/unit.ts";
import type { Log } from "../observability/log.ts";
import type { Metrics } from "../observability/metrics.ts";
import { takeSetting, type WatchedFiles, watchedText } from "../transport/watched-files.ts";
import { type Principal, PROJECT_FORM, ROLES } from "./principal.ts";
import { textRefused } from "./refused-token.ts";

interface StaticToken extends Pick<Principal, "id" | "roles" | "projectId"> {
  /** In the form of `digestOf`. */
  readonly digest: string;
}

const TOKEN_CHARS_MIN = 16;
const TOKEN_CHARS_MAX = 4_096;
/** The limit of problems that one error lists. */
const PROBLEMS_MAX = 10;

/** SHA-256 of a token: tokens are stored and looked up by it, so memory contains no token. */
export function digestOf(token: string): string {
  return hash("sha256", token, "hex");
}

const error = (expected: string) => ({ error: `expected ${expected}` });
const text = (expected: string, form: RegExp) =>
  z.string(error(expected)).regex(form, error(expected));

const TOKEN_FORM = new RegExp(`^[\\x21-\\x7e]{${TOKEN_CHARS_MIN},${TOKEN_CHARS_MAX}}$`);
const tokenSchema = z
  .strictObject(
    {
      id: text("1 to 128 of A-Z, a-z, 0-9 and ._@-", /^[A-Za-z0-9._@-]{1,128}$/),
      token: text(
        `${TOKEN_CHARS_MIN} to ${TOKEN_CHARS_MAX} printable ASCII characters`,
        TOKEN_FORM,
      ).optional(),
      tokenSha256: text("64 hexadecimal digits", /^[0-9a-fA-F]{64}$/).optional(),
      roles: z
        .array(z.enum(ROLES, error(`one of ${ROLES.join(", ")}`)), error("a list of roles"))
        .min(1, error("at least one role")),
      project: text("1 to 256 characters, no control characters", PROJECT_FORM).optional(),
    },
    error("an object of id, token or tokenSha256, roles, project, and nothing else"),
  )
  .refine(
    (one) => (one.token === undefined) !== (one.tokenSha256 === undefined),
    error("either token or tokenSha256"),
  );
const fileSchema = z.strictObject(
  { tokens: z.array(tokenSchema, error("a list")) },
  error('an object {"tokens":[…]}, and nothing else'),
);

/** Throws a ServiceError that names the place of each problem, and quotes nothing of the text. */
export function parseStaticTokens(json: string): readonly StaticToken[] {
  const parsed = fileSchema.safeParse(jsonOf(json));
  if (!parsed.success) {
    const problems = parsed.error.issues.map(({ path, message }) => `${placeOf(path)}${message}`);
    throw textRefused(listed(problems));
  }
  const tokens = parsed.data.tokens.map(({ id, token, tokenSha256, roles, project }) => ({
    id,
    digest: token === undefined ? (tokenSha256 ?? "").toLowerCase() : digestOf(token),
    roles: [...new Set(roles)],
    projectId: project,
  }));
  refuseDuplicates(tokens);
  return tokens;
}

/**
 * Two tokens with one id look the same in the log; one token with two ids has no clear caller.
 * `others` are the tokens of the other setting.
 */
function refuseDuplicates(
  tokens: readonly StaticToken[],
  others: readonly StaticToken[] = [],
): void {
  const problems = (["id", "digest"] as const).flatMap((key) => {
    const firsts = new Map(others.map((token) => [token[key], "one of AUTH_TOKENS"]));
    return tokens.flatMap((token, index) => {
      const first = firsts.get(token[key]);
      if (first === undefined) firsts.set(token[key], `that of tokens[${index}]`);
      const named = key === "id" ? "id" : "token";
      return first === undefined
        ? []
        : [`tokens[${index}].${named}: expected another than ${first}`];
    });
  });
  if (problems.length > 0) throw textRefused(listed(problems));
}

interface StaticTokensOptions {
  readonly authTokens: string | undefined;
  readonly authTokensFile: string | undefined;
  readonly filePollMs: number;
}

/** The tokens of both settings: those of AUTH_TOKENS never change, the others follow their file. */
export class StaticTokens implements Unit {
  readonly #authTokens: string | undefined;
  readonly #file: WatchedFiles | undefined;
  #byDigest = new Map<string, { readonly token: StaticToken; readonly principal: Principal }>();
  #principals = new Set<Principal>();

  constructor(
    { log, metrics }: { readonly log: Log; readonly metrics: Pick<Metrics, "authFileReloads"> },
    { authTokens, authTokensFile: path, filePollMs: pollMs }: StaticTokensOptions,
  ) {
    this.#authTokens = authTokens;
    if (path === undefined) return;
    this.#file = watchedText(
      {
        log,
        take: (json) => this.#take(json),
        onReload: (outcome) => metrics.authFileReloads.inc({ file: "tokens", outcome }),
      },
      { setting: "AUTH_TOKENS_FILE", path, pollMs },
    );
  }

  async start(): Promise<void> {
    this.#take(undefined);
    await this.#file?.start();
  }

  /** Reads both settings and rejects as a start does. */
  async check(): Promise<void> {
    this.#take(undefined);
    await this.#file?.check();
  }

  async stop(): Promise<void> {
    await this.#file?.stop();
  }

  /** True without a token at all. */
  get isEmpty(): boolean {
    return this.#byDigest.size === 0;
  }

  find(digest: string): Principal | undefined {
    const found = this.#byDigest.get(digest);
    if (found === undefined) return undefined;
    const isSame = timingSafeEqual(
      Buffer.from(found.token.digest, "hex"),
      Buffer.from(digest, "hex"),
    );
    return isSame ? found.principal : undefined;
  }

  /** Whether the principal's token still exists, with the same meaning. */
  has(principal: Principal): boolean {
    return this.#principals.has(principal);
  }

  /** An unchanged token keeps its principal, and so its streams. */
  #take(ofFile: string | undefined): void {
    const fixed: StaticToken[] = [];
    if (this.#authTokens !== undefined) {
      takeSetting("AUTH_TOKENS", this.#authTokens, (json) =>
        fixed.push(...parseStaticTokens(json)),
      );
    }
    const changing = ofFile === undefined ? [] : parseStaticTokens(ofFile);
    refuseDuplicates(changing, fixed);
    const before = this.#byDigest;
    this.#byDigest = new Map(
      [...fixed, ...changing].map((token) => {
        const old = before.get(token.digest);
        const isSame = old !== undefined && isEqual(old.token, token);
        return [token.digest, isSame ? old : { token, principal: principalOf(token) }];
      }),
    );
    this.#principals = new Set(Array.from(this.#byDigest.values(), ({ principal }) => principal));
  }
}

function principalOf({ id, roles, projectId }: StaticToken): Principal {
  return { id, kind: "static", roles, projectId, sessionId: undefined, expiresAtMs: undefined };
}

function isEqual(left: StaticToken, right: StaticToken): boolean {
  const roles = (token: StaticToken): string => token.roles.toSorted().join();
  return left.id === right.id && left.projectId === right.projectId && roles(left) === roles(right);
}

/** The parser's message quotes the text, which may hold a token; its place quotes nothing. */
function jsonOf(json: string): unknown {
  try {
    return JSON.parse(json);
  } catch (cause) {
    const message = cause instanceof Error ? cause.message : "";
    const position = /line \d+ column \d+|position \d+/.exec(message)?.[0];
    throw textRefused(`expected JSON${position === undefined ? "" : `; wrong at ${position}`}`);
  }
}

function placeOf(path: readonly PropertyKey[]): string {
  const position = path
    .map((part) => (typeof part === "number" ? `[${part}]` : `.${String(part)}`))
    .join("")
    .replace(/^\./, "");
  return position === "" ? "" : `${position}: `;
}

function listed(problems: readonly string[]): string {
  const left = problems.length - PROBLEMS_MAX;
  const more = left > 0 ? `; and ${left} more` : "";
  return problems.slice(0, PROBLEMS_MAX).join("; ") + more;
}
