/**
 * A completion script for bash, made from the commands of the program: it offers the words that
 * follow the words before the cursor, and files where a value has no list of choices.
 */
import { Argument, type Command } from "commander";
import { type CliIo, printLine } from "./io.ts";

export function addCompletion(program: Command, io: CliIo): void {
  program
    .command("completion")
    .summary("print the completion script of bash")
    .description("print the completion script of bash: `source <(session-ledger completion bash)`")
    .addArgument(new Argument("<shell>", "the shell").choices(["bash"]))
    .action(() => printLine(io, bash(pathsOf(program))));
}

interface Flag {
  /** `--stream`, or `-s` and `--session`. */
  readonly names: readonly string[];
  readonly hasValue: boolean;
  readonly choices: readonly string[];
}

/** A command, or the program itself with the name "". */
interface CommandPath {
  /** `tail`, or `migrate up`. */
  readonly name: string;
  /** The commands in it, or the choices of its argument. */
  readonly words: readonly string[];
  readonly flags: readonly Flag[];
}

function pathsOf(command: Command, name = ""): readonly CommandPath[] {
  const help = command.createHelp();
  const within = help.visibleCommands(command);
  const choices = command.registeredArguments.flatMap(({ argChoices = [] }) => argChoices);
  const words = [...within.map((one) => one.name()), ...choices];
  const flags = help.visibleOptions(command).map((option) => ({
    names: [option.short, option.long].filter((flag) => flag !== undefined && flag !== null),
    hasValue: option.required || option.optional,
    choices: option.argChoices ?? [],
  }));
  const inner = within.flatMap((one) => pathsOf(one, `${name} ${one.name()}`.trim()));
  return [{ name, words, flags }, ...inner];
}

/** Patterns of `place word` that lead to another place: `" tail"`, `"migrate up"`. */
function nextWords(paths: readonly CommandPath[]): string {
  const names = paths.filter(({ name }) => name !== "").map(({ name }) => name);
  return names.map((name) => `"${name.includes(" ") ? "" : " "}${name}"`).join("|");
}

/** Patterns of `place flag`, in which the next word is the flag's value. */
function patterns({ name }: CommandPath, { names }: Flag): string {
  return names.map((flag) => `"${name} ${flag}"`).join("|");
}

function bash(paths: readonly CommandPath[]): string {
  const values = paths.flatMap((place) =>
    place.flags
      .filter(({ hasValue }) => hasValue)
      .map((flag) => {
        const offered = flag.choices.length === 0 ? "" : `${offer(flag.choices)}; `;
        return `    ${patterns(place, flag)}) ${offered}return ;;`;
      }),
  );
  const cases = paths.map(({ name, words, flags }) => {
    const options = offer(flags.flatMap(({ names }) => names));
    const others = words.length === 0 ? ":" : offer(words);
    return `    "${name}") if [[ $cur == -* ]]; then ${options}; else ${others}; fi ;;`;
  });
  return `_session_ledger() {
  local cur="\${COMP_WORDS[COMP_CWORD]}" prev="" at="" index
  COMPREPLY=()
  for ((index = 1; index < COMP_CWORD; index++)); do
    prev="\${COMP_WORDS[index]}"
    case "$at $prev" in
      ${nextWords(paths)}) at="\${at:+$at }$prev" ;;
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

function offer(words: readonly string[]): string {
  return `COMPREPLY=($(compgen -W "${words.join(" ")}" -- "$cur"))`;
}
