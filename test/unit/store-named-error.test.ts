import { describe, expect, test } from "vitest";
import { namedError, storeError } from "../../src/store/failure.ts";

const NAMED = { setting: "DATABASE_URL", url: "postgres://u:horse@db.internal/ledger" };

function driverError(code: string, message = code): Error {
  return Object.assign(new Error(message), { code });
}

describe("an unusable database is named without its password", () => {
  test.each([
    ["28P01", 'password authentication failed for user "u"'],
    ["28000", 'role "u" does not exist'],
    ["3D000", 'database "ledger" does not exist'],
  ])("with the error %s", (code, message) => {
    expect(namedError(storeError(driverError(code, message)), NAMED)).toMatchObject({
      code: "invalid_argument",
      message: `DATABASE_URL: db.internal:5432 cannot be used: PostgreSQL reports ${message} (${code})`,
    });
  });

  test("with an untrusted certificate", () => {
    const error = driverError("SELF_SIGNED_CERT_IN_CHAIN", "self-signed certificate");
    expect(namedError(storeError(error), NAMED)).toMatchObject({
      code: "invalid_argument",
      message: expect.stringContaining("db.internal:5432 cannot be used: TLS failed: self-signed"),
    });
  });
});

test.each([
  ["ECONNREFUSED", "ECONNREFUSED"],
  ["ENOTFOUND", "ENOTFOUND"],
])("an unreachable database is reported with its address: %s", (code, said) => {
  expect(namedError(storeError(driverError(code)), NAMED)).toMatchObject({
    code: "unavailable",
    reason: "DATABASE_UNAVAILABLE",
    message: `the database of DATABASE_URL at db.internal:5432 is not available (${said})`,
  });
});

test("an error keeps its first setting, and a defect stays a defect", () => {
  const source = namedError(storeError(driverError("ECONNREFUSED")), {
    ...NAMED,
    setting: "--from",
  });
  expect(namedError(source, NAMED)).toBe(source);
  const defect = driverError("42601", "syntax error");
  expect(namedError(defect, NAMED)).toBe(defect);
});
