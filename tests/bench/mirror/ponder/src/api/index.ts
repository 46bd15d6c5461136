// What the bench asks: which block the newest row is of, and every row's place.
import { desc } from "drizzle-orm";
import { Hono } from "hono";
import { db } from "ponder:api";
import { transfer } from "ponder:schema";

const app = new Hono();

app.get("/newest", async (c) => {
  const rows = await db.select().from(transfer).orderBy(desc(transfer.blockNumber)).limit(1);
  return c.json(rows.map((row) => [row.blockNumber, row.blockHash]));
});

app.get("/places", async (c) => {
  const rows = await db.select().from(transfer);
  return c.json(rows.map((row) => [row.blockNumber, row.logIndex, row.txHash]));
});

export default app;
