// Each transfer is a row.
import { ponder } from "ponder:registry";
import { transfer } from "ponder:schema";

ponder.on("Token:Transfer", async ({ event, context }) => {
  await context.db.insert(transfer).values({
    blockNumber: Number(event.block.number),
    logIndex: event.log.logIndex,
    blockHash: event.block.hash,
    txHash: event.transaction.hash,
    sender: event.args.sender,
    recipient: event.args.to,
    value: event.args.value,
  });
});
