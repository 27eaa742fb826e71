import { once } from "node:events";
import { connect, createServer, type ServerHttp2Session } from "node:http2";
import { expect, onTestFinished, test } from "vitest";
import { RenewedMap } from "../../src/base/renewed-map.ts";
import { renewStreams } from "../../src/rpc/connections.ts";

test("this version of Node takes a RenewedMap for the streams of a connection", async () => {
  const server = createServer();
  const sessions: ServerHttp2Session[] = [];
  const renewed: boolean[] = [];
  server.on("session", (session) => {
    sessions.push(session);
    renewed.push(renewStreams(session));
  });
  const sizes: (number | undefined)[] = [];
  server.on("stream", (stream) => {
    sizes.push(streamsOf(sessions[0])?.size);
    stream.respond({ ":status": 200 }, { endStream: true });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  const port = typeof address === "object" && address !== null ? address.port : 0;
  const client = connect(`http://127.0.0.1:${port}`);
  onTestFinished(() => client.destroy());
  const requests = Array.from({ length: 1_500 }, async () => {
    const request = client.request({ ":path": "/" });
    request.resume();
    await once(request, "close");
  });
  await Promise.all(requests);
  expect(renewed).toEqual([true]);
  expect(sizes).toHaveLength(1_500);
  expect(Math.min(...sizes.map(Number))).toBeGreaterThan(0);
  await expect.poll(() => streamsOf(sessions[0])?.size).toBe(0);
  // The connection ends when Node finds no stream in the map.
  client.close();
  server.close();
  await once(server, "close");
});

function streamsOf(
  session: ServerHttp2Session | undefined,
): RenewedMap<unknown, unknown> | undefined {
  const states = Object.getOwnPropertySymbols(session ?? {}).map((key) =>
    Object(Reflect.get(session ?? {}, key)),
  );
  return states.find(({ streams }) => streams instanceof RenewedMap)?.streams;
}
