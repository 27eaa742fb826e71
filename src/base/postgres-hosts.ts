/**
 * A URL of PostgreSQL with several hosts as one URL for each host. `target_session_attrs` is left
 * out, because store/primary.ts looks for the primary.
 */
export function urlsOfHosts(url: string): readonly string[] {
  const [, before = "", hosts = "", after = ""] =
    /^(\w+:\/\/(?:[^/?#]*@)?)([^/?#]*)(.*)$/s.exec(url) ?? [];
  if (!hosts.includes(",")) return [url];
  const rest = after.replace(/([?&])target_session_attrs=[^&#]*&?/, "$1");
  return hosts.split(",").map((host) => `${before}${host}${rest}`);
}
