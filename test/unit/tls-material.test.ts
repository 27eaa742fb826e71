/** The files of TLS: refusals at the start, and changes while the service runs. */
import { generateKeyPairSync } from "node:crypto";
import { mkdir, rename, rm, symlink, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ServiceError } from "@session-ledger/base/errors";
import { systemClock } from "@session-ledger/base/clock";
import { createLogTo } from "../../src/observability/log.ts";
import { createMetrics } from "../../src/observability/metrics.ts";
import { TlsMaterial } from "../../src/transport/watched-files.ts";
import {
  type Authority,
  type CertificateFiles,
  certificateFiles,
  createAuthority,
} from "../support/certificates.ts";
import { cleanUp, makeDirectory } from "../support/embedded-fixture.ts";
import { describeUnitContract } from "../support/unit-contract.ts";

type TlsFiles = ConstructorParameters<typeof TlsMaterial>[1];

let authority: Authority;
beforeAll(async () => {
  authority = await createAuthority();
});
afterAll(cleanUp);

const POLL_MS = 5;

function material(files: Pick<TlsFiles, "certFile" | "keyFile"> & Partial<TlsFiles>) {
  const lines: { readonly level: string; readonly msg: string }[] = [];
  let said = Promise.withResolvers<void>();
  const log = createLogTo({
    write: (line) => {
      lines.push(JSON.parse(line));
      said.resolve();
      said = Promise.withResolvers();
    },
  });
  const metrics = createMetrics();
  const unit = new TlsMaterial(
    { log, metrics, clock: systemClock },
    { clientCaFile: undefined, ...files },
    { pollMs: POLL_MS },
  );
  const heard = async (msg: string): Promise<void> => {
    while (!lines.some((line) => line.msg === msg)) await said.promise;
  };
  return { unit, lines, metrics, heard };
}

async function newFiles(): Promise<CertificateFiles> {
  return certificateFiles(await authority.server(), authority);
}

describeUnitContract("TLS material", {
  create: async () => material(await newFiles()).unit,
  isOfUse: (unit) => unit.secureContextOptions.cert !== undefined,
  remains: () => [], // A timer that is left would keep the test's process alive.
  broken: {
    create: () => material({ certFile: "/nowhere/tls.crt", keyFile: "/nowhere/tls.key" }).unit,
    failure: /TLS_CERT_FILE: "\/nowhere\/tls.crt" cannot be read \(ENOENT\)/,
  },
});

describe("an unusable file is refused at the start, with the name of its setting", () => {
  const cases: readonly (readonly [
    string,
    (files: CertificateFiles) => Promise<TlsFiles>,
    string | RegExp,
  ])[] = [
    [
      "a missing key file",
      async (files) => ({ ...files, keyFile: `${files.keyFile}.not`, clientCaFile: undefined }),
      /^TLS_KEY_FILE: ".*\.not" cannot be read \(ENOENT\)$/,
    ],
    [
      "a directory",
      async (files) => ({ ...files, certFile: dirname(files.certFile), clientCaFile: undefined }),
      /^TLS_CERT_FILE: "\/.*" cannot be read \(EISDIR\)$/,
    ],
    [
      "a key in place of the certificate",
      async (files) => ({ ...files, certFile: files.keyFile, clientCaFile: undefined }),
      "TLS_CERT_FILE: expected a certificate in PEM",
    ],
    [
      "a certificate in place of the key",
      async (files) => ({ ...files, keyFile: files.certFile, clientCaFile: undefined }),
      "TLS_KEY_FILE: expected a private key in PEM",
    ],
    [
      "a key of another certificate",
      async (files) => {
        await writeFile(files.keyFile, (await authority.server()).key);
        return { ...files, clientCaFile: undefined };
      },
      "TLS_KEY_FILE: the key is not that of the certificate in TLS_CERT_FILE",
    ],
    [
      "a key with a password",
      async (files) => {
        const { privateKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
        const locked = { cipher: "aes-256-cbc", passphrase: "x" } as const;
        const key = privateKey.export({ type: "pkcs8", format: "pem", ...locked });
        await writeFile(files.keyFile, key);
        return { ...files, clientCaFile: undefined };
      },
      "TLS_KEY_FILE: expected a private key without password",
    ],
    [
      "a file of authorities without any",
      async (files) => ({ ...files, clientCaFile: files.keyFile }),
      "TLS_CLIENT_CA_FILE: expected a certificate in PEM",
    ],
    [
      "a text that looks like a certificate",
      async (files) => {
        const text = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        await writeFile(files.certFile, text);
        return { ...files, clientCaFile: undefined };
      },
      "TLS_CERT_FILE: expected a certificate in PEM",
    ],
  ];
  test.each(cases)("for %s", async (_, prepare, message) => {
    const { unit } = material(await prepare(await newFiles()));
    await expect(unit.start()).rejects.toSatisfy(
      (error) =>
        error instanceof ServiceError &&
        (typeof message === "string" ? error.message === message : message.test(error.message)),
    );
    await unit.stop();
  });
});

describe("changed files", () => {
  test("are refused until all of them match, and the old certificate stays", async () => {
    const files = await newFiles();
    const { unit, metrics, lines, heard } = material(files);
    await unit.start();
    const { cert } = unit.secureContextOptions;
    const other = await authority.server();
    await writeFile(files.certFile, other.certificate); // Its key is written later.
    await heard("TLS certificate refused, the old one stays");
    expect(unit.secureContextOptions.cert).toBe(cert);
    expect(lines.at(-1)).toMatchObject({
      level: "error",
      err: { message: "TLS_KEY_FILE: the key is not that of the certificate in TLS_CERT_FILE" },
    });
    await writeFile(files.keyFile, other.key);
    await heard("TLS certificate taken");
    expect(unit.secureContextOptions.cert).toBe(other.certificate);
    expect(await metrics.text()).toContain('tls_reloads_total{outcome="failed"} 1');
    lines.length = 0;
    await rm(files.certFile);
    await heard("TLS certificate refused, the old one stays");
    expect(unit.secureContextOptions.cert).toBe(other.certificate);
    await unit.stop();
  });

  test("are loaded when Kubernetes replaces the link to their directory", async () => {
    const root = await makeDirectory();
    const put = async (version: string, { certificate, key }: Identity): Promise<void> => {
      await mkdir(join(root, version));
      await writeFile(join(root, version, "tls.crt"), certificate);
      await writeFile(join(root, version, "tls.key"), key);
      await symlink(version, join(root, "..data.new"));
      await rename(join(root, "..data.new"), join(root, "..data"));
    };
    const [one, other] = [await authority.server(), await authority.server()];
    await put("1", one);
    await symlink("..data/tls.crt", join(root, "tls.crt"));
    await symlink("..data/tls.key", join(root, "tls.key"));
    const { unit, heard, lines } = material({
      certFile: join(root, "tls.crt"),
      keyFile: join(root, "tls.key"),
    });
    await unit.start();
    expect(unit.secureContextOptions.cert).toBe(one.certificate);
    await put("2", other);
    await heard("TLS certificate taken");
    expect(unit.secureContextOptions.cert).toBe(other.certificate);
    expect(lines.map(({ level }) => level)).not.toContain("error");
    await unit.stop();
  });
});

type Identity = Awaited<ReturnType<Authority["server"]>>;
