/**
 * The settings of the embedded server. They are arguments, which win over postgresql.conf and over
 * ALTER SYSTEM. So the guarantees (an acknowledged row is on disk; only this machine can connect)
 * cannot be configured away, and an upgrade of the service applies its settings to old clusters
 * too. Users who need other settings run their own PostgreSQL, with DATABASE_URL.
 */
const SETTINGS: Readonly<Record<string, string>> = {
  // "Acknowledged" means "on disk".
  fsync: "on",
  synchronous_commit: "on",
  full_page_writes: "on",

  // See cluster.ts for the rules of access.
  listen_addresses: "127.0.0.1",
  unix_socket_directories: "",
  password_encryption: "scram-sha-256",

  // An ingest service writes all day, and after every checkpoint each changed page is logged in
  // full once. So checkpoints are rarer than by default (1 GB, 5 min). The price is disk, and a
  // longer replay after a crash. These values and shared_buffers are educated guesses, not
  // measured: the machine is also a developer's.
  shared_buffers: "256MB",
  max_wal_size: "2GB",
  checkpoint_timeout: "10min",

  // The log goes to our log, in one language. `terse` and `panic` keep keys and statements out of
  // it, which contain messages to an agent. The caller gets every error anyway.
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
