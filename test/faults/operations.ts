/** The operations of a run, by kind and outcome. */
import type { Answer, PushRecord } from "../support/history.ts";
import type { Load } from "./load.ts";
import type { Evidence } from "./verdict.ts";

export type Operations = Readonly<Record<string, Readonly<Record<string, number>>>>;

export function operationsOf(load: Load, { stored, witness }: Evidence): Operations {
  const { history, streamWriters, writerRecords, turned, cancelled, passReaders, feedReaders } =
    load;
  const cancels = cancelled.flatMap((one) => one.cancels);
  const claims = turned.flatMap((one) => one.claims);
  const groups = Map.groupBy(history.pushes, ({ sent }) =>
    sent.key === undefined ? "unkeyed pushes" : "keyed pushes",
  );
  const passes = passReaders.flatMap((reader) => reader.passes);
  const byWay = Map.groupBy(passes, ({ by }) => by);
  return {
    ...Object.fromEntries([...groups].map(([name, pushes]) => [name, attemptsIn(pushes)])),
    "stream writers": {
      "raw events": sum(streamWriters.map(({ events }) => events.length)),
      acknowledged: sum(streamWriters.map(({ progress }) => progress)),
      ...counted(streamWriters.flatMap(({ breaks }) => breaks).map((why) => `ended by ${why}`)),
      ...counted(streamWriters.flatMap(({ left }) => left).map((why) => `left, then ${why}`)),
    },
    "session writers": {
      events: sum(writerRecords.map(({ events }) => events.length)),
      messages: sum(writerRecords.map(({ messages }) => messages.length)),
      ...totals(writerRecords.map(({ problems }) => problems)),
    },
    runners: {
      claims: claims.length,
      turns: claims.filter(({ taken }) => taken !== undefined).length,
      messages: sum(claims.map(({ taken = [] }) => taken.length)),
    },
    cancels: { acknowledged: cancels.filter(({ seq }) => seq !== undefined).length },
    watchers: {
      watchers: history.readers.length,
      rows: sum(history.readers.map(({ rows }) => rows.length)),
    },
    ...Object.fromEntries(
      [...byWay].map(([by, own]) => [
        `readers by ${by}`,
        { passes: own.length, rows: sum(own.map(({ seen }) => seen.length)) },
      ]),
    ),
    "ways lost by readers": { breaks: sum(passReaders.map(({ breaks }) => breaks)) },
    feeds: {
      rows: sum(feedReaders.map(({ seen }) => seen.length)),
      repeated: sum(feedReaders.map(({ repeated }) => repeated)),
      breaks: sum(feedReaders.map(({ breaks }) => breaks)),
    },
    stored: {
      rows: witness.rows.length,
      "raw events": sum([...stored.values()].map(({ events }) => events.length)),
    },
  };
}

function attemptsIn(pushes: readonly PushRecord[]): Readonly<Record<string, number>> {
  const answers = pushes.flatMap(({ attempts }) => attempts.map(({ answer }) => nameOf(answer)));
  return { pushes: pushes.length, attempts: answers.length, ...counted(answers) };
}

function nameOf(answer: Answer): string {
  if (answer.kind !== "acknowledged") return `${answer.kind} ${answer.reason}`;
  return answer.deduplicated ? "acknowledged, deduplicated" : "acknowledged, new";
}

function counted(names: readonly string[]): Readonly<Record<string, number>> {
  const groups = [...Map.groupBy(names, (name) => name)].toSorted(([one], [other]) =>
    one < other ? -1 : 1,
  );
  return Object.fromEntries(groups.map(([name, own]) => [name, own.length]));
}

function totals(maps: readonly ReadonlyMap<string, number>[]): Readonly<Record<string, number>> {
  return counted(
    maps.flatMap((map) => [...map].flatMap(([kind, n]) => Array<string>(n).fill(kind))),
  );
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, one) => total + one, 0);
}
