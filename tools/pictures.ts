/** The pictures of the documents. `node tools/pictures.ts` writes them into docs/pictures. */
import { mkdir, writeFile } from "node:fs/promises";
import { join as joined } from "node:path";
import { fileURLToPath } from "node:url";
import { type Box, type Picture, svgOf } from "./drawings.ts";
import { tables } from "./tables-picture.ts";

const overview: Picture = {
  title: "session-ledger between agents and readers",
  description:
    "A runner pushes the events of an agent into one instance, people push messages into another one. Both commit to one PostgreSQL before they answer, wake each other up, and deliver watches to browsers, scripts and other runners.",
  size: [880, 290],
  boxes: [
    { at: [20, 30], size: [110, 50], title: "agent" },
    { at: [180, 30], size: [120, 50], title: "runner" },
    { at: [180, 210], size: [120, 50], title: "person" },
    { at: [400, 30], size: [160, 50], title: "instance 1", tone: "accent" },
    { at: [400, 120], size: [160, 50], title: "PostgreSQL", lines: ["all state"] },
    { at: [400, 210], size: [160, 50], title: "instance 2", tone: "accent" },
    {
      at: [680, 20],
      size: [180, 70],
      title: "browser",
      lines: ["inspector, SSE,", "AG-UI, CopilotKit"],
    },
    { at: [680, 210], size: [180, 50], title: "script, other runner" },
  ],
  arrows: [
    {
      path: "130,55 178,55",
    },
    {
      path: "300,55 398,55",
      label: "push stream",
    },
    {
      path: "300,235 398,235",
      label: "message",
    },
    {
      path: "480,80 480,118",
      label: "commit, fsync",
      labelAt: [530, 104],
    },
    {
      path: "480,210 480,172",
      label: "commit, fsync",
      labelAt: [530, 196],
    },
    {
      path: "560,67 600,67 600,223 562,223",
      isDashed: true,
      label: "wake-up",
      labelAt: [636, 149],
    },
    {
      path: "560,55 678,55",
      label: "watch",
      labelAt: [640, 48],
    },
    {
      path: "560,235 678,235",
      label: "watch",
      labelAt: [640, 228],
    },
  ],
};

const pushPath: Picture = {
  title: "The path of a push",
  description:
    "A push goes from rpc, which decodes it, through api, which checks and normalises it, and ingest, which puts it into the line of its session, to store, which sends a batch of lines in one transaction. After the commit the callers get their answers, and live gets the rows for the watchers.",
  size: [880, 250],
  boxes: [
    { at: [20, 60], size: [90, 60], title: "caller" },
    { at: [160, 50], size: [110, 80], title: "rpc", lines: ["decode"], tone: "accent" },
    {
      at: [310, 50],
      size: [140, 80],
      title: "handlers",
      lines: ["form, AG-UI,", "key, digest"],
      tone: "accent",
    },
    {
      at: [490, 50],
      size: [150, 80],
      title: "ingest",
      lines: ["a line a session,", "a batch of lines"],
      tone: "accent",
    },
    {
      at: [680, 50],
      size: [180, 80],
      title: "store",
      lines: ["one statement,", "one transaction, fsync"],
      tone: "accent",
    },
    { at: [490, 175], size: [150, 50], title: "live", lines: ["windows"] },
    { at: [310, 175], size: [140, 50], title: "watchers" },
  ],
  arrows: [
    {
      path: "110,90 158,90",
    },
    {
      path: "270,90 308,90",
    },
    {
      path: "450,90 488,90",
    },
    {
      path: "640,90 678,90",
    },
    {
      path: "770,130 770,200 642,200",
      label: "the rows",
      labelAt: [712, 193],
    },
    {
      path: "490,200 452,200",
    },
    {
      path: "770,50 770,24 50,24 50,58",
      label: "after the commit: the stored row",
      labelAt: [400, 17],
    },
  ],
};

const cellsOf = (numbers: readonly number[], x: number, y: number, tone: Box["tone"]): Box[] =>
  numbers.map((number, index) => ({
    at: [x + index * 54, y],
    size: [50, 36],
    title: String(number),
    tone: tone ?? "plain",
  }));

const watchWindow: Picture = {
  title: "The window of a watched session",
  description:
    "The rows 1 to 8 are only in the table, the rows 9 to 14 also in the window. A watcher whose cursor is 3 reads pages of the table, one at 10 takes rows from memory, and one at 14, the head, waits for the next commit, which joins the window.",
  size: [880, 250],
  boxes: [
    ...cellsOf([1, 2, 3, 4, 5, 6, 7, 8], 20, 100, "plain"),
    ...cellsOf([9, 10, 11, 12, 13, 14], 452, 100, "accent"),
    { at: [776, 100], size: [84, 36], title: "15", lines: [], tone: "soft" },
  ],
  arrows: [
    {
      path: "153,200 153,142",
    },
    {
      path: "531,200 531,142",
    },
    {
      path: "747,200 747,142",
    },
    {
      path: "818,62 818,98",
    },
    {
      path: "446,40 446,150",
      isDashed: true,
      hasNoHead: true,
    },
  ],
  words: [
    { at: [20, 84], text: "only in the table", tone: "soft" },
    { at: [452, 84], text: "the window, in memory", tone: "accent" },
    { at: [446, 32], text: "floor", tone: "soft", anchor: "middle" },
    { at: [747, 84], text: "head", tone: "soft", anchor: "middle" },
    { at: [818, 54], text: "commit", tone: "soft", anchor: "middle" },
    { at: [153, 218], text: "behind: reads pages", anchor: "middle" },
    { at: [153, 236], text: "at its own pace", tone: "soft", anchor: "middle" },
    { at: [531, 218], text: "inside: takes rows", anchor: "middle" },
    { at: [531, 236], text: "from memory", tone: "soft", anchor: "middle" },
    { at: [747, 218], text: "waiting: one read", anchor: "middle" },
    { at: [747, 236], text: "for all that wait", tone: "soft", anchor: "middle" },
  ],
};

const turns: Picture = {
  title: "A turn is claimed once",
  description:
    "Of five messages, two had their turn: the watermark turn_seq is 2. Two runners claim at once. One commit gives the messages 3, 4 and 5 to runner A, stores RUN_STARTED and moves the watermark to 5. Runner B gets RUN_OPEN.",
  size: [880, 270],
  boxes: [
    ...cellsOf([1, 2], 20, 60, "plain"),
    ...cellsOf([3, 4, 5], 136, 60, "accent"),
    {
      at: [380, 40],
      size: [200, 80],
      title: "ClaimTurn: one commit",
      lines: ["RUN_STARTED is stored,", "turn_seq becomes 5"],
    },
    {
      at: [680, 40],
      size: [180, 80],
      title: "runner A",
      lines: ["messages 3, 4, 5"],
      tone: "accent",
    },
    { at: [680, 180], size: [180, 60], title: "runner B", lines: ["RUN_OPEN"] },
  ],
  arrows: [
    {
      path: "296,78 378,78",
      label: "waiting",
    },
    {
      path: "580,80 678,80",
      label: "the turn",
    },
    {
      path: "680,210 480,210 480,122",
      label: "claims at the same time",
      labelAt: [580, 203],
    },
    {
      path: "130,40 130,122",
      isDashed: true,
      hasNoHead: true,
    },
  ],
  words: [
    { at: [20, 48], text: "had their turn", tone: "soft" },
    { at: [136, 48], text: "wait", tone: "accent" },
    { at: [130, 30], text: "turn_seq = 2", tone: "soft", anchor: "middle" },
  ],
};

const join: Picture = {
  title: "How an AG-UI client joins a session",
  description:
    "The stored rows pass canonical, which makes a stream that every client accepts, and transcript, which folds it into messages and state, cached by session. The client gets a snapshot of them. The live tail passes canonical from the cached place on. Both pass generation, which leaves out what the client cannot parse, and go to the client as server-sent events.",
  size: [880, 230],
  boxes: [
    { at: [20, 40], size: [110, 50], title: "stored rows" },
    { at: [20, 150], size: [110, 50], title: "live tail" },
    {
      at: [180, 40],
      size: [130, 160],
      title: "canonical",
      lines: ["legal for", "every client"],
      tone: "accent",
    },
    {
      at: [370, 40],
      size: [150, 60],
      title: "transcript",
      lines: ["cached by session"],
      tone: "accent",
    },
    { at: [570, 40], size: [90, 60], title: "snapshot" },
    { at: [570, 140], size: [90, 60], title: "events" },
    {
      at: [710, 40],
      size: [150, 160],
      title: "generation",
      lines: ["what this client", "can parse", "", "then SSE"],
      tone: "accent",
    },
  ],
  arrows: [
    {
      path: "130,65 178,65",
    },
    {
      path: "130,175 178,175",
    },
    {
      path: "310,70 368,70",
      label: "fold",
    },
    {
      path: "520,70 568,70",
    },
    {
      path: "660,70 708,70",
      label: "1",
    },
    {
      path: "310,170 568,170",
      label: "from the cached place on",
    },
    {
      path: "660,170 708,170",
      label: "2",
    },
  ],
};

export const PICTURES: Readonly<Record<string, Picture>> = {
  overview,
  "push-path": pushPath,
  "watch-window": watchWindow,
  turns,
  join,
  tables,
} satisfies Readonly<Record<string, Picture>>;

if (import.meta.main) {
  const folder = fileURLToPath(new URL("../docs/pictures/", import.meta.url));
  await mkdir(folder, { recursive: true });
  for (const [name, picture] of Object.entries(PICTURES))
    await writeFile(joined(folder, `${name}.svg`), svgOf(picture));
}
