/**
 * The form of a secret: words that begin it, and after them a minimum number of characters of one
 * class. The language has nothing more, so every pattern is found in one pass over any text
 * (automaton.ts), and a text can be read piece by piece.
 *
 *   prefix        class{least}            sk-ant-   [A-Za-z0-9_-]{20}
 *   prefix  gap   class{least}            SecretAccessKey   ": "   [A-Za-z0-9/+=]{40}
 *   prefix  class{least} joint class{least}      eyJ  […]{10}  .eyJ  […]{20}
 *
 * The mask begins after the prefix. The prefix is not secret, and it tells a reader the kind of the
 * secret. Because the prefix stays, its first characters never have to be held back: otherwise
 * every fragment that ends with an "s" would wait for the next one, because of `sk-`.
 *
 * The forms are from the documentation of providers and from scanners for leaked secrets, with
 * lower minimum lengths where providers have changed them before. A wrong mask is only a nuisance.
 */
export interface Secret {
  /** The name under which it is counted. */
  readonly kind: string;
  readonly prefixes: readonly string[];
  /** True: the prefix must begin a word, because `sk-` is also in `task-`. */
  readonly startsWord?: boolean;
  /** None: the prefixes are whole secrets, and are masked (`wholeSecret`). */
  readonly parts: readonly Part[];
}

export interface Part {
  /** The text between the previous part and this one; empty where their classes differ. */
  readonly joint?: string;
  /** ASCII, in the form of a regular expression's brackets. */
  readonly characters: string;
  readonly least: number;
  /** Only its last units are masked; for parts that prove nothing until the next one is there. */
  readonly window?: number;
  /** The part is between a name and its value, and is not masked. */
  readonly isGap?: boolean;
  /** The number of dashes in a row that ends the part, and the prefix. A dash may be masked. */
  readonly endsAtDashes?: number;
}

/** A secret whose value is known. It has no prefix that could stay: all of it is masked. */
export function wholeSecret(kind: string, value: string): Secret {
  return { kind, prefixes: [value], parts: [] };
}

const ALPHANUMERIC = "A-Za-z0-9";
const URL_SAFE = "A-Za-z0-9_-";
const BASE64 = "A-Za-z0-9/+=";

function simple(
  kind: string,
  prefixes: readonly string[],
  { characters, least, startsWord = false }: Part & { readonly startsWord?: boolean },
): Secret {
  return { kind, prefixes, startsWord, parts: [{ characters, least }] };
}

/** From a name to its value: `aws_secret_access_key = `, `"SecretAccessKey": "`, `\": \"`. */
const GAP: Part = { characters: " \t\n\r\"'`:=\\\\", least: 1, isGap: true };

function pemHeaders(): readonly string[] {
  const names = ["", "RSA ", "EC ", "DSA ", "ENCRYPTED ", "OPENSSH "];
  const headers = names.map((name) => `-----BEGIN ${name}PRIVATE KEY-----`);
  return [...headers, "-----BEGIN PGP PRIVATE KEY BLOCK-----"];
}

export const BUILT_IN: readonly Secret[] = [
  simple("anthropic", ["sk-ant-"], { characters: URL_SAFE, least: 20 }),
  simple("openai", ["sk-proj-", "sk-svcacct-", "sk-admin-"], { characters: URL_SAFE, least: 20 }),
  // OpenAI's first keys, and keys of many services with its protocol.
  simple("openai", ["sk-"], { characters: ALPHANUMERIC, least: 20, startsWord: true }),
  simple("openrouter", ["sk-or-v1-"], { characters: ALPHANUMERIC, least: 32 }),
  simple("aws_access_key_id", ["AKIA", "ASIA"], {
    characters: "A-Z0-9",
    least: 16,
    startsWord: true,
  }),
  {
    kind: "aws_secret",
    prefixes: [
      "aws_secret_access_key",
      "AWS_SECRET_ACCESS_KEY",
      "SecretAccessKey",
      "secretAccessKey",
      "aws_session_token",
      "AWS_SESSION_TOKEN",
      "SessionToken",
      "sessionToken",
    ],
    parts: [GAP, { characters: BASE64.replace("=", ""), least: 40 }],
  },
  simple("google", ["AIza"], { characters: URL_SAFE, least: 35 }),
  simple("google", ["GOCSPX-", "ya29."], { characters: URL_SAFE, least: 20 }),
  simple(
    "slack",
    ["a", "b", "c", "d", "e", "o", "p", "r", "s"].map((letter) => `xox${letter}-`),
    {
      characters: "A-Za-z0-9%-",
      least: 10,
    },
  ),
  simple("slack", ["xapp-", "hooks.slack.com/services/"], { characters: "A-Za-z0-9/-", least: 20 }),
  simple("github", ["ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"], {
    characters: "A-Za-z0-9_",
    least: 36,
  }),
  simple(
    "gitlab",
    [
      "glpat-",
      "gldt-",
      "glrt-",
      "glrtr-",
      "glcbt-",
      "glptt-",
      "glft-",
      "glimt-",
      "glagent-",
      "gloas-",
      "glsoat-",
      "glffct-",
      "GR1348941",
    ],
    { characters: "A-Za-z0-9_.-", least: 20 },
  ),
  simple("stripe", ["sk_live_", "rk_live_", "whsec_"], { characters: ALPHANUMERIC, least: 16 }),
  simple("npm", ["npm_"], { characters: ALPHANUMERIC, least: 36, startsWord: true }),
  simple("huggingface", ["hf_"], { characters: ALPHANUMERIC, least: 30, startsWord: true }),
  {
    kind: "jwt",
    prefixes: ["eyJ"],
    startsWord: true,
    parts: [
      // `{"` in base64 begins many texts that are not tokens; a header with a payload after it is a
      // token.
      { characters: URL_SAFE, least: 10, window: 1_024 },
      { joint: ".eyJ", characters: "A-Za-z0-9_.-", least: 20 },
    ],
  },
  {
    kind: "private_key",
    prefixes: pemHeaders(),
    // Base64 and its lines, in JSON inside JSON too, and headers like `Proc-Type: 4,ENCRYPTED`.
    parts: [{ characters: "A-Za-z0-9/+= \t\n\r\\\\:,.;()_", least: 16, endsAtDashes: 5 }],
  },
];
