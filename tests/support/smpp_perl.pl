# An SMPP peer by Perl's Net::SMPP, for tests: says what smpp_npm.js says. Serves one connection.
use strict;
use warnings;
use Net::SMPP;
use IO::Socket::INET;

$| = 1;
my $listener = IO::Socket::INET->new(Listen => 5, LocalAddr => '127.0.0.1', LocalPort => 0)
    or die "cannot listen: $!";
print $listener->sockport, "\n";
my $peer = $listener->accept;
bless $peer, 'Net::SMPP';
$peer->set_version(0x34);
${*$peer}{enquire_interval} = 0;
my $count = 0;
while (my $pdu = $peer->read_pdu) {
    my $command = $pdu->{cmd};
    if ($command == 0x09) {
        my $known = $pdu->{system_id} eq 'user' && $pdu->{password} eq 'secret';
        $peer->bind_transceiver_resp(
            system_id => 'perl', seq => $pdu->{seq}, status => $known ? 0 : 0x0E);
    } elsif ($command == 0x04) {
        my $id = 'perl-' . ++$count;
        my $text = $pdu->{short_message};
        my @part = (1, 1);
        if ($pdu->{esm_class} & 0x40) {
            @part = (ord(substr $text, 5, 1), ord(substr $text, 4, 1));
            $text = substr $text, 6;
        }
        printf qq({"to": "%s", "from": "%s", "coding": %d, "part": [%d, %d], "octets": "%s"}\n),
            $pdu->{destination_addr}, $pdu->{source_addr}, $pdu->{data_coding}, @part,
            unpack 'H*', $text;
        $peer->submit_sm_resp(message_id => $id, seq => $pdu->{seq});
        my @who = (source_addr_ton => 1, source_addr => $pdu->{destination_addr},
                   destination_addr => $pdu->{source_addr});
        $peer->deliver_sm(@who, esm_class => 4, async => 1, short_message =>
            "id:$id sub:001 dlvrd:001 submit date:2611211200 done date:2611211201 stat:DELIVRD err:000 text:x")
            if $pdu->{registered_delivery};
        $peer->deliver_sm(@who, async => 1, short_message => ' Stop. ') if $text eq 'stop me';
    } elsif ($command == 0x80000005) {
        print qq({"acknowledged": "any"}\n);
    } elsif ($command == 0x15) {
        $peer->enquire_link_resp(seq => $pdu->{seq});
    } elsif ($command == 0x06) {
        print qq("unbind"\n);
        $peer->unbind_resp(seq => $pdu->{seq});
    }
}
