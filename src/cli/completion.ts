/**
 * Completion scripts for shells, made from the commands of the program. A script finds its place
 * in the table of commands by the words before the cursor, and offers the words of that place.
 * Where a value has no list of choices, the shell offers files.
 */
import { Argument, type Command } from "commander";
import { type CliIo, EXIT, printLine } from "./io.ts";
import type { Finish } from "./serve.ts";

const SCRIPTS = { bash, zsh, fish };
type Shell = keyof typeof SCRIPTS;

export function addCompletion(program: Command, io: CliIo, finish: Finish): void {
  const shells: readonly string[] = Object.keys(SCRIPTS);
  program
    .command("completion")
    .summary("print the completion script of a shell")
    .description(
      "print the completion script of a shell: `source <(session-ledger completion bash)`, the same with zsh after compinit, or `session-ledger completion fish | source`",
    )
    .addArgument(new Argument("<shell>", "the shell").choices(shells))
    .action(async (shell: Shell) => {
      await printLine(io, SCRIPTS[shell](placesOf(program)));
      finish(EXIT.done);
    });
}

interface Word {
  readonly word: string;
  readonly meaning: string;
}

interface Flag {
  /** `--stream`, or `-s` and `--session`. */
  readonly names: readonly string[];
  readonly meaning: string;
  readonly hasValue: boolean;
  readonly choices: readonly string[];
}

/** A command, or the program itself with the name "". */
interface Place {
  /** `tail`, or `migrate up`. */
  readonly name: string;
  /** The commands in it, or the choices of its argument. */
  readonly words: readonly Word[];
  readonly flags: readonly Flag[];
}

function placesOf(command: Command, name = ""): readonly Place[] {
  const help = command.createHelp();
  const within = help.visibleCommands(command);
  const choices = command.registeredArguments.flatMap(({ argChoices = [] }) => argChoices);
  const words = [
    ...within.map((one) => ({ word: one.name(), meaning: help.subcommandDescription(one) })),
    ...choices.map((word) => ({ word, meaning: "" })),
  ];
  const flags = help.visibleOptions(command).map((option) => ({
    names: [option.short, option.long].filter((flag) => flag !== undefined && flag !== null),
    meaning: option.description,
    hasValue: option.required || option.optional,
    choices: option.argChoices ?? [],
  }));
  const inner = within.flatMap((one) => placesOf(one, `${name} ${one.name()}`.trim()));
  return [{ name, words, flags }, ...inner];
}

/** Patterns of `place word` that lead to another place: `" tail"`, `"migrate up"`. */
function steps(places: readonly Place[], separator: string): string {
  const names = places.filter(({ name }) => name !== "").map(({ name }) => name);
  return names.map((name) => `"${name.includes(" ") ? "" : " "}${name}"`).join(separator);
}

/** Patterns of `place flag`, in which the next word is the flag's value. */
function patterns({ name }: Place, { names }: Flag): string {
  return names.map((flag) => `"${name} ${flag}"`).join("|");
}

function bash(places: readonly Place[]): string {
  const values = places.flatMap((place) =>
    place.flags
      .filter(({ hasValue }) => hasValue)
      .map((flag) => {
        const offered = flag.choices.length === 0 ? "" : `${bashOffer(flag.choices)}; `;
        return `    ${patterns(place, flag)}) ${offered}return ;;`;
      }),
  );
  const cases = places.map(({ name, words, flags }) => {
    const options = bashOffer(flags.flatMap(({ names }) => names));
    const others = words.length === 0 ? ":" : bashOffer(words.map(({ word }) => word));
    return `    "${name}") if [[ $cur == -* ]]; then ${options}; else ${others}; fi ;;`;
  });
  return `_session_ledger() {
  local cur="\${COMP_WORDS[COMP_CWORD]}" prev="" at="" index
  COMPREPLY=()
  for ((index = 1; index < COMP_CWORD; index++)); do
    prev="\${COMP_WORDS[index]}"
    case "$at $prev" in
      ${steps(places, "|")}) at="\${at:+$at }$prev" ;;
    esac
  done
  case "$at $prev" in
${values.join("\n")}
  esac
  case "$at" in
${cases.join("\n")}
  esac
}
complete -o default -F _session_ledger session-ledger`;
}

function bashOffer(words: readonly string[]): string {
  return `COMPREPLY=($(compgen -W "${words.join(" ")}" -- "$cur"))`;
}

function zsh(places: readonly Place[]): string {
  const values = places.flatMap((place) =>
    place.flags
      .filter(({ hasValue }) => hasValue)
      .map((flag) => {
        const offer = flag.choices.length === 0 ? "_files" : `compadd -- ${flag.choices.join(" ")}`;
        return `    ${patterns(place, flag)}) ${offer}; return ;;`;
      }),
  );
  const cases = places.map(({ name, words, flags }) => {
    const options = flags.flatMap(({ names, meaning }) => names.map((word) => ({ word, meaning })));
    return `    "${name}") choices=(${zshDescribed(words)}); flags=(${zshDescribed(options)}) ;;`;
  });
  return `_session_ledger() {
  local prev="" at="" index
  local -a choices flags
  for ((index = 2; index < CURRENT; index++)); do
    prev="\${words[index]}"
    case "$at $prev" in
      ${steps(places, "|")}) at="\${at:+$at }$prev" ;;
    esac
  done
  case "$at $prev" in
${values.join("\n")}
  esac
  case "$at" in
${cases.join("\n")}
  esac
  if [[ "\${words[CURRENT]}" == -* ]]; then
    _describe -o option flags
  elif (( \${#choices} > 0 )); then
    _describe word choices
  else
    _files
  fi
}
compdef _session_ledger session-ledger`;
}

function zshDescribed(words: readonly Word[]): string {
  return words
    .map(({ word, meaning }) => zshQuoted(meaning === "" ? word : `${word}:${meaning}`))
    .join(" ");
}

function zshQuoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

function fish(places: readonly Place[]): string {
  const lines = places.flatMap(({ name, words, flags }) => {
    const start = `complete -c session-ledger -n ${fishQuoted(`__session_ledger_at "${name}"`)}`;
    return [
      ...words.map(({ word, meaning }) => `${start} -f -a ${word} -d ${fishQuoted(meaning)}`),
      ...flags.map(({ names, meaning, hasValue, choices }) => {
        const forms = names.map((flag) =>
          flag.startsWith("--") ? `-l ${flag.slice(2)}` : `-s ${flag.slice(1)}`,
        );
        const value = choices.length > 0 ? ` -x -a ${fishQuoted(choices.join(" "))}` : " -r";
        return `${start} ${forms.join(" ")}${hasValue ? value : ""} -d ${fishQuoted(meaning)}`;
      }),
    ];
  });
  return `function __session_ledger_at
  set -l tokens (commandline -opc)
  set -e tokens[1]
  set -l at ""
  for word in $tokens
    switch "$at $word"
      case ${steps(places, " ")}
        set at (string trim -- "$at $word")
    end
  end
  test "$at" = "$argv[1]"
end
${lines.join("\n")}`;
}

function fishQuoted(text: string): string {
  return `'${text.replaceAll("\\", "\\\\").replaceAll("'", "\\'")}'`;
}
