// One table of transfers, as the other readers of the bench keep it.
import { onchainTable, primaryKey } from "ponder";

export const transfer = onchainTable(
  "transfer",
  (t) => ({
    blockNumber: t.integer().notNull(),
    logIndex: t.integer().notNull(),
    blockHash: t.hex().notNull(),
    txHash: t.hex().notNull(),
    sender: t.hex().notNull(),
    recipient: t.hex().notNull(),
    value: t.bigint().notNull(),
  }),
  (table) => ({ pk: primaryKey({ columns: [table.blockNumber, table.logIndex] }) }),
);
