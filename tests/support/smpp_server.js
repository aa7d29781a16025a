// An SMPP peer for tests. Writes its port, then each submit_sm as a line of JSON. Takes the login
// user/secret alone, and no part that ends in "refuse me". Needs the npm package smpp.
const smpp = require('smpp');

const say = (what) => process.stdout.write(JSON.stringify(what) + '\n');
const server = smpp.createServer((session) => {
  session.on('error', () => {});
  session.on('bind_transmitter', (pdu) => {
    const known = pdu.system_id === 'user' && pdu.password === 'secret';
    session.send(pdu.response(known ? {} : { command_status: smpp.ESME_RINVPASWD }));
  });
  session.on('submit_sm', (pdu) => {
    const { message, udh } = pdu.short_message;
    say({
      to: pdu.destination_addr,
      from: pdu.source_addr,
      coding: pdu.data_coding,
      // where a text has several parts, its last bytes of header say how many and which this is
      part: udh ? [...udh[0].slice(-2)].reverse() : [1, 1],
      text: message,
    });
    const refused = message.endsWith('refuse me');
    session.send(pdu.response(refused ? { command_status: smpp.ESME_RSUBMITFAIL } : { message_id: 'an id' }));
  });
  session.on('unbind', (pdu) => session.send(pdu.response()));
});
server.listen(0, '127.0.0.1', () => say(server.address().port));
process.stdin.on('end', () => process.exit()).resume();
