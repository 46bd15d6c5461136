// Prints the functions that change state, by contract, from the committed ABI: all that the pages' scripts need of it.
import { readFileSync } from 'node:fs';

const contracts = ['Token', 'Registry', 'Market', 'Rounds', 'Credits'];
const read = (name) => JSON.parse(readFileSync(new URL(`../../../contracts/abi/${name}.json`, import.meta.url))).abi;
const changes = (each) => each.type === 'function' && !['view', 'pure'].includes(each.stateMutability);
const plain = ({ name, inputs }) => ({ name, inputs: inputs.map(({ name, type }) => ({ name, type })) });
const functions = contracts.map((name) => [name, read(name).filter(changes).map(plain)]);
console.log(JSON.stringify(Object.fromEntries(functions)));
