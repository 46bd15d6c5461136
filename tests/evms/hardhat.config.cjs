// Blocks come by the clock, whether or not there is a transaction; several in a second share their timestamp.
module.exports = {
  solidity: '0.8.28',
  networks: {
    hardhat: {
      chainId: 31337,
      hardfork: 'prague',
      allowBlocksWithSameTimestamp: true,
      mining: { auto: false, interval: Number(process.env.BLOCK_MILLISECONDS) },
    },
  },
};
