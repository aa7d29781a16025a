// An SMPP peer by the npm package smpp, for tests. Writes its port, then each part of a text, each
// deliver_sm that is acknowledged, and unbind, as a line of JSON. Takes the login user/secret
// alone. Sends a receipt where one is asked for, a STOP by whoever is sent "stop me", and a long
// text in three parts, the last first and twice, by whoever is sent "write to me".
const smpp = require('smpp');

const say = (what) => process.stdout.write(JSON.stringify(what) + '\n');
const server = smpp.createServer((session) => {
  let count = 0;
  const bind = (pdu) => {
    const known = pdu.system_id === 'user' && pdu.password === 'secret';
    session.send(pdu.response(known ? {} : { command_status: smpp.ESME_RINVPASWD }));
  };
  const deliver = (pdu, more) => session.deliver_sm(
    { source_addr_ton: 1, source_addr_npi: 1, source_addr: pdu.destination_addr,
      destination_addr: pdu.source_addr, ...more },
    () => say({ acknowledged: more.esm_class ? 'receipt' : 'text' }),
  );
  session.on('error', () => {});
  session.on('bind_transmitter', bind);
  session.on('bind_transceiver', bind);
  session.on('enquire_link', (pdu) => session.send(pdu.response()));
  session.on('submit_sm', (pdu) => {
    const message_id = `npm-${++count}`;
    const { message, udh } = pdu.short_message;
    say({
      to: pdu.destination_addr,
      from: pdu.source_addr,
      coding: pdu.data_coding,
      // where a text has several parts, its last bytes of header say how many and which this is
      part: udh ? [...udh[0].slice(-2)].reverse() : [1, 1],
      text: message,
    });
    session.send(pdu.response({ message_id }));
    if (pdu.registered_delivery) {
      const text = `id:${message_id} sub:001 dlvrd:001 submit date:2611211200 done date:2611211201 stat:DELIVRD err:000 text:x`;
      deliver(pdu, {
        esm_class: 4, short_message: text, receipted_message_id: message_id, message_state: 2,
      });
    }
    if (message === 'stop me') deliver(pdu, { short_message: ' Stop. ' });
    const parts = ['Je viendrai à 5 h, ', 'mais dites-moi ', 'où ? 🎉'];
    if (message === 'write to me') {
      for (const number of [3, 1, 3, 2]) {
        const udh = Buffer.from([5, 0, 3, 42, parts.length, number]);
        const short_message = { udh, message: parts[number - 1] };
        deliver(pdu, { esm_class: 0x40, data_coding: 8, short_message });
      }
    }
  });
  session.on('unbind', (pdu) => {
    say('unbind');
    session.send(pdu.response(), () => session.close());
  });
});
server.listen(0, '127.0.0.1', () => say(server.address().port));
process.stdin.on('end', () => process.exit()).resume();
