/** Messages for people about a failed connection; the causes are texts of grpc-js and OpenSSL. */
import { Metadata, status } from "@grpc/grpc-js";
import { expect, test } from "vitest";
import { explain } from "../../src/cli/io.ts";
import { failureFrom } from "@session-ledger/runner/internal/failure";

function said(details: string): string {
  const error = Object.assign(new Error(details), {
    code: status.UNAVAILABLE,
    details,
    metadata: new Metadata(),
  });
  const { exitCode, message } = explain(failureFrom(error));
  expect(exitCode).toBe(3);
  expect(message).not.toMatch(/[\n\\]|\.c:|T\d\d:/);
  return message.replace("UNAVAILABLE: No connection established: ", "");
}

const ALERT = "408D6211117F0000:error:0A00045C:SSL routines:ssl3_read_bytes:tlsv13 alert";
const AT = ":../deps/openssl/openssl/ssl/record/rec_layer_s3.c:918:SSL alert number";

test.each([
  [
    "Error: unable to verify the first certificate; if the root CA is installed locally, try running Node.js with --use-system-ca",
    "the service's certificate is of no authority that is trusted here (unable to verify the first certificate); --ca-file or SESSION_LEDGER_TLS_CA_FILE names the trusted authorities",
  ],
  [
    "Error: self-signed certificate",
    "the service's certificate is of no authority that is trusted here (self-signed certificate); --ca-file or SESSION_LEDGER_TLS_CA_FILE names the trusted authorities",
  ],
  [
    "Error: certificate has expired",
    "the service's certificate is not valid now (certificate has expired); the certificate must be renewed, or a clock is wrong",
  ],
  [
    "Error: Hostname/IP does not match certificate's altnames: IP: 127.0.0.2 is not in the cert's list: 127.0.0.1",
    "the service's certificate is for another name (Hostname/IP does not match certificate's altnames: IP: 127.0.0.2 is not in the cert's list: 127.0.0.1); --address must have the name that is in the service's certificate",
  ],
  [
    `${ALERT} certificate required${AT} 116\n (2026-11-22T08:24:05.472Z)`,
    "the service asks for a certificate of the client (tlsv13 alert certificate required); SESSION_LEDGER_TLS_CERT_FILE and SESSION_LEDGER_TLS_KEY_FILE name the client's certificate",
  ],
  [
    `${ALERT} unknown ca${AT} 48\n (2026-11-22T08:24:05.472Z)`,
    "the service does not accept the client's certificate (tlsv13 alert unknown ca); SESSION_LEDGER_TLS_CERT_FILE must be from an authority that the service trusts",
  ],
  [
    "Error: 408D6211117F0000:error:0A00010B:SSL routines:tls_validate_record_header:wrong version number:../deps/openssl/openssl/ssl/record/methods/tlsany_meth.c:77:\n",
    "the service answers without TLS (wrong version number); without SESSION_LEDGER_TLS and SESSION_LEDGER_TLS_CA_FILE the client does not use TLS",
  ],
  [
    "Protocol error (2026-11-22T08:24:05.486Z)",
    "the server at this address does not speak gRPC (Protocol error); the service has gRPC on port 9000, unless GRPC_ADDRESS sets another one, and HTTP on a separate one",
  ],
  [
    "Error: connect ECONNREFUSED 127.0.0.1:1",
    "no program listens at this address (connect ECONNREFUSED 127.0.0.1:1); is the service running, and its gRPC on another port than 9000?",
  ],
  [
    "Failed to connect (2026-11-22T08:24:05.486Z)",
    "the service closed the connection at once: it may expect TLS, or another certificate of the client (Failed to connect); check the SESSION_LEDGER_TLS settings",
  ],
])("the cause of a failed connection is explained: %s", (original, line) => {
  expect(said(`No connection established. Last error: ${original}. Resolution note: `)).toBe(line);
});

test("other failures keep their message", () => {
  const refused = "No connection established. Last error: Error: connect EHOSTUNREACH 127.0.0.1:1";
  expect(said(`${refused}. Resolution note: `)).toBe(`UNAVAILABLE: ${refused}`);
  // A message of the service itself is never interpreted.
  expect(said("certificate has expired")).toBe("UNAVAILABLE: certificate has expired");
});
