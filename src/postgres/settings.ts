/**
 * The settings of the embedded server. They are arguments, which win over postgresql.conf and over
 * ALTER SYSTEM: what is promised (an acknowledged row is on disk; nobody outside this machine comes in)
 * cannot be configured away, and an upgrade of the service brings its settings to old clusters too.
 * Who needs other settings runs a PostgreSQL of their own, with DATABASE_URL.
 */
const SETTINGS: Readonly<Record<string, string>> = {
  // Acknowledged means on disk.
  fsync: "on",
  synchronous_commit: "on",
  full_page_writes: "on",

  // See cluster.ts for who may come in.
  listen_addresses: "127.0.0.1",
  unix_socket_directories: "",
  password_encryption: "scram-sha-256",

  // An ingest service writes all day, and after every checkpoint each page it touches is logged in full
  // once: so fewer of them than by default (1 GB, 5 min). The price is disk, and a longer replay after a
  // crash. Educated guesses, not measured, and shared_buffers too: the machine is also a developer's.
  shared_buffers: "256MB",
  max_wal_size: "2GB",
  checkpoint_timeout: "10min",

  // To our log, in one language. `terse` and `panic` keep keys and statements, which hold what people
  // said to an agent, out of it: the caller is told of an error anyway.
  logging_collector: "off",
  log_destination: "stderr",
  log_line_prefix: "",
  log_error_verbosity: "terse",
  log_min_error_statement: "panic",
  lc_messages: "C",
  log_timezone: "UTC",
  timezone: "UTC",
};

export function serverArguments(options: {
  readonly pgData: string;
  readonly port: number;
}): readonly string[] {
  const settings = Object.entries({ ...SETTINGS, port: String(options.port) });
  return ["-D", options.pgData, ...settings.flatMap(([name, value]) => ["-c", `${name}=${value}`])];
}
