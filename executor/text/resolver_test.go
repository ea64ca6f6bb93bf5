package text

import (
	"context"
	"net"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// A name server that has no answer for IPv4 addresses alone takes no server away.
func TestPartOfAddressesIsNoAnswer(t *testing.T) {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	go func() {
		for buffer := make([]byte, 512); ; {
			n, from, err := conn.ReadFrom(buffer)
			var m dnsmessage.Message
			if err != nil || m.Unpack(buffer[:n]) != nil {
				return
			}
			m.Response, m.Additionals = true, nil
			if q := m.Questions[0]; q.Type == dnsmessage.TypeA {
				m.RCode = dnsmessage.RCodeServerFailure
			} else {
				m.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class}, Body: &dnsmessage.AAAAResource{AAAA: [16]byte{15: 1}}}}
			}
			if answer, err := m.Pack(); err == nil {
				_, _ = conn.WriteTo(answer, from)
			}
		}
	}()
	r := &net.Resolver{PreferGo: nameResolver.PreferGo, StrictErrors: nameResolver.StrictErrors, Dial: func(context.Context, string, string) (net.Conn, error) {
		return net.Dial("udp", conn.LocalAddr().String())
	}}
	if addresses, err := r.LookupNetIP(t.Context(), "ip", "servers.example."); err == nil {
		t.Errorf("found %v, expected an error", addresses)
	}
}
