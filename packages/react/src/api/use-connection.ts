import { createContext, useContext } from "react";
import type { Connection } from "./connection.ts";

const Context = createContext<Connection | undefined>(undefined);

export const ConnectionProvider = Context.Provider;

export function useConnection(): Connection {
  const connection = useContext(Context);
  if (connection === undefined) throw new Error("not inside of a connection");
  return connection;
}
