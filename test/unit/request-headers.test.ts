import { describe, expect, test } from "vitest";
import { preparedHeaders } from "../../src/rpc/connections.ts";
import { isCompressed } from "../../src/rpc/decompress.ts";

describe("the headers of a call", () => {
  test.each([
    [["authorization", "a"], "a"],
    [["authorization", "a", "te", "trailers", "authorization", "a"], "a"],
    [
      ["authorization", "a", "authorization", "b", "authorization", "a"],
      ["a", "b"],
    ],
    [["te", "authorization"], undefined],
  ] as const)("have the authorization %j as %j", (raw, expected) => {
    const first = raw[0] === "authorization" ? { authorization: raw[1] } : {};
    const headers = { ...first };
    preparedHeaders(headers, raw);
    expect(Reflect.get(headers, "authorization")).toEqual(expected);
  });

  test.each([
    ["gzip", "gzip", "identity"],
    ["deflate", "deflate", "identity"],
    ["identity", undefined, "identity"],
    ["br", undefined, "br"],
  ])("with the encoding %s give %s, and leave %s to grpc-js", (given, expected, left) => {
    const headers = { "grpc-encoding": given };
    expect(preparedHeaders(headers, [])).toBe(expected);
    expect(headers["grpc-encoding"]).toBe(left);
  });

  test("say with the flag of the frame whether a message is compressed", () => {
    for (const flag of [0, 1]) {
      const frame = Buffer.concat([Buffer.from([flag, 0, 0, 0, 1]), Buffer.from("x")]);
      expect(isCompressed(frame.subarray(5))).toBe(flag === 1);
    }
  });
});
