// Where Ponder finds the bench's chain, which the environment names.
import { createConfig } from "ponder";
import { parseAbi } from "viem";

export default createConfig({
  database: { kind: "pglite", directory: process.env.BENCH_DATABASE! },
  // As often as Ponder lets one look for new blocks; it is a second where nothing is said.
  chains: { anvil: { id: 31337, rpc: process.env.BENCH_RPC!, pollingInterval: 100, disableCache: true } },
  contracts: {
    Token: {
      abi: parseAbi(["event Transfer(address indexed sender, address indexed to, uint256 value)"]),
      chain: "anvil",
      address: process.env.BENCH_TOKEN as `0x${string}`,
      startBlock: Number(process.env.BENCH_START),
    },
  },
});
