/**
 * Wake-ups by NATS, over the real server: that they are heard, that every way of not hearing is
 * noticed and mended, and that a stop ends in the middle of it. What a carrier has in common with any
 * other is test/unit/exchange.test.ts. No database is needed; it is here because ports are.
 */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createNatsCarrier } from "../../src/live/hints/carrier.ts";
import { breakableWay, startNobody, startTcpProxy } from "../support/broken-network.ts";
import {
  type NatsServer,
  startNatsServer,
  stoppedNatsServer,
  WakeUpInstance,
} from "../support/wake-ups.ts";
import { needs } from "../support/tools.ts";
import { describeUnitContract } from "../support/unit-contract.ts";
import { eventually } from "../support/eventually.ts";

const NATS = { openLimitMs: 500, pingIntervalMs: 100 };

async function subscribed(url: string, subject = "wake.ups"): Promise<WakeUpInstance> {
  return WakeUpInstance.started(createNatsCarrier({ url, subject }, NATS));
}

test(
  "(nats-server) other instances hear the commits of one, which does not hear itself",
  needs("nats-server"),
  async () => {
    await using server = await startNatsServer();
    await using one = await subscribed(server.url);
    await using other = await subscribed(server.url);
    await using elsewhere = await subscribed(server.url, "another.database");
    for (const instance of [one, other, elsewhere])
      expect(await instance.hears(1)).toEqual(["regained"]);
    one.commit("s");
    expect(await other.hears(1)).toEqual(["s 0 1"]);
    one.exchange.deleted("s");
    expect(await other.hears(1)).toEqual(["s 0 0 deleted"]);
    other.commit("t");
    expect(await one.hears(1)).toEqual(["t 0 1"]);
    expect(await elsewhere.hears(0)).toEqual([]);
  },
);

test(
  "(nats-server) a server that is down delays no start, and is used when it is up",
  needs("nats-server"),
  async () => {
    await using server = await stoppedNatsServer();
    await using one = await subscribed(server.url);
    await using other = await subscribed(server.url);
    for (const instance of [one, other]) expect(await instance.hears(1)).toEqual(["lost"]);
    await server.start();
    for (const instance of [one, other]) expect(await instance.hears(1)).toEqual(["regained"]);
    one.commit("s");
    expect(await other.hears(1)).toEqual(["s 0 1"]);
  },
);

test(
  "(nats-server) announcements that cannot be sent are replaced by a `*`",
  needs("nats-server"),
  async () => {
    await using server = await startNatsServer();
    await using other = await subscribed(server.url);
    expect(await other.hears(1)).toEqual(["regained"]);
    const way = await breakableWay({ host: "127.0.0.1", port: server.port });
    const one = await subscribed(`nats://127.0.0.1:${way.port}`);
    expect(await one.hears(1)).toEqual(["regained"]);
    await way.cut();
    expect(await one.hears(1)).toEqual(["lost"]);
    one.commit("s");
    one.commit("t");
    await eventually(() => expect(one.logged).toContain("wake_ups_not_sent"));
    await way.mend();
    expect(await one.hears(1)).toEqual(["regained"]);
    expect(await other.hears(1)).toEqual(["missed"]);
    await one.exchange.stop();
    await way.cut();
  },
);

test(
  "(nats-server) a restarted server is connected again, and missed sessions are looked up",
  needs("nats-server"),
  async () => {
    await using server = await startNatsServer();
    await using one = await subscribed(server.url);
    await using other = await subscribed(server.url);
    for (const instance of [one, other]) expect(await instance.hears(1)).toEqual(["regained"]);
    for (let restart = 0; restart < 2; restart += 1) {
      await server.stop();
      for (const instance of [one, other]) expect(await instance.hears(1)).toEqual(["lost"]);
      await server.start();
      for (const instance of [one, other]) expect(await instance.hears(1)).toEqual(["regained"]);
    }
    one.commit("s");
    expect(await other.hears(1)).toEqual(["s 0 1"]);
  },
);

test(
  "(nats-server) a black hole is detected by a ping, and the connection is closed",
  needs("nats-server"),
  async () => {
    await using server = await startNatsServer();
    const proxy = await startTcpProxy({ host: "127.0.0.1", port: server.port });
    const one = await subscribed(`nats://127.0.0.1:${proxy.port}`);
    expect(await one.hears(1)).toEqual(["regained"]);
    proxy.holdAnswers();
    one.commit("s"); // On its way when nothing is answered any more.
    expect(await one.hears(1)).toEqual(["lost"]);
    proxy.cut();
    expect(await one.hears(1)).toEqual(["regained"]);
    await one.exchange.stop();
    await proxy.stop();
  },
);

test("a server that never answers is left, with no socket open", async () => {
  const nobody = await startNobody((socket) => socket.resume());
  const limits = { openLimitMs: 50, pingIntervalMs: 100 };
  const url = `nats://127.0.0.1:${nobody.port}`;
  const one = await WakeUpInstance.started(createNatsCarrier({ url, subject: "s" }, limits));
  expect(await one.hears(1)).toEqual(["lost"]);
  await one.exchange.stop();
  await eventually(() => expect(nobody.open).toBe(0));
  await nobody.stop();
});

test(
  "(nats-server) a wrong password and a refused subject count as a lost connection",
  needs("nats-server"),
  async () => {
    const config = `authorization { users = [{
      user: ann, password: "p@ss", permissions: { subscribe: { deny: ["closed"] } }
    }] }`;
    await using server = await startNatsServer({ config });
    const { port } = server;
    await using nobody = await subscribed(`nats://127.0.0.1:${port}`);
    await using wrong = await subscribed(`nats://ann:wrong@127.0.0.1:${port}`);
    await using denied = await subscribed(`nats://ann:p%40ss@127.0.0.1:${port}`, "closed");
    await using allowed = await subscribed(`nats://ann:p%40ss@127.0.0.1:${port}`, "open");
    for (const instance of [nobody, wrong, denied]) {
      expect(await instance.hears(1)).toEqual(["lost"]);
    }
    expect(await allowed.hears(1)).toEqual(["regained"]);
  },
);

describe.skipIf(needs("nats-server").skip)("with a server", () => {
  let server: NatsServer;

  beforeAll(async () => {
    server = await startNatsServer();
  });

  afterAll(() => server.stop());

  describeUnitContract("(nats-server) wake-ups by NATS", {
    create: () => {
      const carrier = createNatsCarrier({ url: server.url, subject: "s" }, NATS);
      const instance = new WakeUpInstance(carrier);
      return Object.assign(instance.exchange, { instance });
    },
    isOfUse: async ({ instance }) => {
      await using other = await subscribed(server.url, "s");
      other.commit("s");
      return (await instance.hears(2)).includes("s 0 1");
    },
    remains: async ({ instance }) => ((await instance.isConnected()) ? ["a connection"] : []),
  });
});

describeUnitContract("wake-ups by NATS, while there is no server,", {
  create: async () => {
    const { url } = await stoppedNatsServer();
    const instance = new WakeUpInstance(createNatsCarrier({ url, subject: "s" }, NATS));
    return Object.assign(instance.exchange, { instance });
  },
  isOfUse: async ({ instance }) => {
    return (await instance.hears(1)).includes("lost");
  },
  remains: () => [],
});
