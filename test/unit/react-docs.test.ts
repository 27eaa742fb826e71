/** The examples of the component in docs/react.md and in its README compile, and the page has all its props. */
import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, test } from "vitest";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
const textOf = (path: string): string => readFileSync(join(ROOT, path), "utf8");
const PAGES = ["docs/react.md", "packages/react/README.md"];

/** CopilotKit's components, as far as the page uses them; version 1.74.0 has these props. */
const FOREIGN = `declare module "@copilotkit/react-core/v2" {
  import type { ReactElement, ReactNode } from "react";
  export function CopilotKit(props: { runtimeUrl: string; children: ReactNode }): ReactElement;
  export function CopilotChat(props: { agentId?: string; threadId?: string }): ReactElement;
}`;

function examplesIn(text: string): readonly string[] {
  return [...text.matchAll(/```tsx\n(.*?)```/gs)].map(([, code = ""]) => code);
}

async function faultsOf(examples: readonly string[]): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "session-ledger-react-"));
  try {
    for (const [at, code] of examples.entries())
      await writeFile(join(folder, `example${at}.tsx`), code);
    await writeFile(join(folder, "foreign.d.ts"), FOREIGN);
    const types = join(ROOT, "node_modules/@types/react");
    const paths = {
      "@session-ledger/react": [join(ROOT, "packages/react/src/index.tsx")],
      react: [types],
      "react/*": [`${types}/*`],
    };
    const config = {
      extends: join(ROOT, "packages/react/tsconfig.json"),
      compilerOptions: { paths, rootDir: "/" },
      include: [folder],
    };
    await writeFile(join(folder, "tsconfig.json"), JSON.stringify(config));
    const ended = promisify(execFile)(join(ROOT, "node_modules/.bin/tsc"), ["-p", folder]);
    return await ended.then(
      () => "",
      (error: { readonly stdout: string }) => error.stdout,
    );
  } finally {
    await rm(folder, { recursive: true });
  }
}

test("the examples compile with the component, and one with a wrong prop does not", async () => {
  const examples = PAGES.flatMap((page) => examplesIn(textOf(page)));
  expect(examples.length).toBe(3);
  expect(await faultsOf(examples)).toBe("");
  const [first = ""] = examples;
  expect(await faultsOf([first.replace("session={session}", "session={7}")])).toMatch(
    /example0\.tsx.*'number' is not assignable to type 'string'/,
  );
});

test("the table of the page has every prop, in the order of the code", () => {
  const [, code = ""] =
    /interface SessionViewProps \{(.*?)\n\}/s.exec(textOf("packages/react/src/props.ts")) ?? [];
  const props = [...code.matchAll(/^ {2}readonly (\w+)\??:/gm)].map(([, name]) => name);
  const rows = [...textOf("docs/react.md").matchAll(/^\| `(\w+)` \|/gm)].map(([, name]) => name);
  expect(props.length).toBeGreaterThan(5);
  expect(rows).toEqual(props);
});
