import { Empty } from "../ui/empty.tsx";

export function StoragePage() {
  return <Empty title="Storage" />;
}
