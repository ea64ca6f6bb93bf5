package text

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Servers take free instances, keep them, and stand by where there is none.
func TestServersTakeInstancesWithout(t *testing.T) {
	offer := func(text string) ServerOffer {
		o, _, err := ParseServerOffer(text)
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	for _, c := range []struct {
		name, fixed, before, offers, placed, standby string
	}{
		{"in order", "", "", "http://a http://b", "0=http://a 1=http://b", ""},
		{"beside a fixed one", "0=http://f", "", "http://a http://b http://c", "0=http://f 1=http://a 2=http://b", "http://c"},
		{"stays when the first leaves", "", "0=http://a 1=http://b", "http://c http://b", "0=http://c 1=http://b", ""},
		{"numbers first", "", "", "http://a 0=http://b", "0=http://b 1=http://a", ""},
		{"ranges", "", "", "http://a 1-2=http://b 1-2=http://c 1-2=http://d", "0=http://a 1=http://b 2=http://c", "http://d"},
		{"beyond the plan", "", "", "9=http://a 2-9=http://b", "2=http://b", "http://a"},
		{"a server a model", "", "", "0/m=http://a 0/n=http://b http://c 0/m=http://d", "0/m=http://a 0/n=http://b 1=http://c", "http://d"},
		{"named twice", "0=http://f", "", "http://f http://a http://a", "0=http://f 1=http://a", ""},
		{"named in several ways", "0=http://f/v1", "", "http://f http://a http://a/ http://a/v1 http://a/v1/", "0=http://f/v1 1=http://a", ""},
		{"an instance that the plan has no more", "", "7=http://a", "http://a", "0=http://a", ""},
		{"another range than before", "", "0=http://a", "1-2=http://a", "1=http://a", ""},
	} {
		list := func(text string) (out []InstanceServer) {
			for _, word := range strings.Fields(text) {
				o := offer(word)
				o.Server.Instance = o.FirstInstance
				out = append(out, o.Server)
			}
			return out
		}
		var offers []ServerOffer
		for _, word := range strings.Fields(c.offers) {
			offers = append(offers, offer(word))
		}
		placed, standby := placeServers(offers, list(c.fixed), list(c.before), 3)
		if !slices.Equal(placed, list(c.placed)) || !slices.Equal(standby, strings.Fields(c.standby)) {
			t.Errorf("%s: placed %v, standing by %v; expected %s and %s", c.name, placed, standby, c.placed, c.standby)
		}
	}
}

// Whatever comes and goes: no instance has two servers, a server stays where it was while it is offered, and none
// stands by beside an instance that it could take.
func TestServersStayWhereTheyAre(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var before []InstanceServer
		for range 6 {
			instances := rapid.IntRange(1, 5).Draw(t, "instances")
			var offers []ServerOffer
			for i := range rapid.IntRange(0, 8).Draw(t, "offers") {
				if rapid.Bool().Draw(t, "there") {
					first := i / 2
					offers = append(offers, ServerOffer{FirstInstance: first, LastInstance: first + i%3*anyInstance/2, Server: InstanceServer{URL: fmt.Sprint("http://", i)}})
				}
			}
			placed, standby := placeServers(offers, nil, before, instances)
			if len(placed)+len(standby) != len(offers) {
				t.Fatalf("%d offers, placed %v, standing by %v", len(offers), placed, standby)
			}
			byInstance := map[int]bool{}
			for _, s := range placed {
				if byInstance[s.Instance] || s.Instance >= instances {
					t.Fatalf("placed %v on %d instances", placed, instances)
				}
				byInstance[s.Instance] = true
			}
			for _, o := range offers {
				i := slices.IndexFunc(before, func(s InstanceServer) bool { return s.URL == o.Server.URL && s.Instance < instances })
				if i >= 0 && !slices.Contains(placed, before[i]) {
					t.Fatalf("%v has left its instance: %v", before[i], placed)
				}
				for n := o.FirstInstance; n <= min(o.LastInstance, instances-1); n++ {
					if slices.Contains(standby, o.Server.URL) && !byInstance[n] {
						t.Fatalf("%v stands by, and instance %d has no server", o, n)
					}
				}
			}
			before = placed
		}
	})
}

// A file of servers: its lines, what is wrong with them, and changes, which count once they are whole.
func TestServerFileIsRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "servers")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for content, want := range map[string]string{
		"http://a\nfile:///b\n":                  "servers:2: file:///b: \"file:///b\": expected the address of an OpenAI-compatible server",
		"x=http://a":                             "servers:1: x=http://a: expected URL, N=URL or N/MODEL=URL",
		"3-1=http://a":                           "servers:1: 3-1=http://a: expected URL",
		"-1=http://a":                            "servers:1: -1=http://a: expected URL",
		"# two\nhttp://a\n\n0=http://a":          "servers:4: found http://a, which line 2 has, too",
		"http://a\nhttp://a/v1/":                 "servers:2: found http://a/v1/, which line 1 has, too",
		"dns+http://a":                           "servers:1: found dns+http://a, expected http:// or https://",
		strings.Repeat("#", maxServerFile) + "#": "found 1048577 bytes",
	} {
		write(content)
		if _, err := NewServerFile(path, ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.30q: error %v, expected %q", content, err, want)
		}
	}
	write("# mine\n\n http://a \n2-3/m=http://b")
	f, err := NewServerFile(path, "key")
	if err != nil {
		t.Fatal(err)
	}
	a, b := ServerOffer{LastInstance: anyInstance, Server: InstanceServer{URL: "http://a", Key: "key"}}, ServerOffer{2, 3, InstanceServer{URL: "http://b", Model: "m", Key: "key"}}
	expect := func(fails bool, want ...ServerOffer) {
		t.Helper()
		if got, err := f.Offers(t.Context()); !slices.Equal(got, want) || (err != nil) != fails {
			t.Errorf("found %v, error %v; expected %v", got, err, want)
		}
	}
	expect(false, a, b)
	write("http://a")
	expect(false, a, b)
	expect(false, a)
	write("")
	write("http://a\nrubbish")
	expect(false, a)
	expect(true, a)
	write("")
	expect(false, a)
	expect(false)
}

// Each address of a name is a server. Where nothing answers, nothing is said about servers.
func TestAddressesOfNameAreServers(t *testing.T) {
	for _, c := range []struct{ url, addresses, want string }{
		{"0-3=dns+http://llm:8000", "10.0.0.2 10.0.0.1 ::ffff:10.0.0.2 fd00::1", "http://10.0.0.1:8000 http://10.0.0.2:8000"},
		{"dns+http://llm/v1", "10.0.0.1", "http://10.0.0.1/v1"},
		{"dns+http://llm", "fd00::1", "http://[fd00::1]"},
		{"dns+http://llm:1", "fd00::1", "http://[fd00::1]:1"},
		{"dns+http://llm:1", "", "error"},
		{"dns+http://llm:1", "fails", "error"},
	} {
		o, isName, err := ParseServerOffer(c.url)
		if err != nil || !isName {
			t.Fatal(err, isName)
		}
		n, err := NewServerName(o, "key")
		if err != nil {
			t.Fatal(err)
		}
		n.lookup = func(_ context.Context, _, host string) (out []netip.Addr, err error) {
			for _, a := range strings.Fields(c.addresses) {
				if a == "fails" || host != "llm" {
					return nil, errors.New("no name server")
				}
				out = append(out, netip.MustParseAddr(a))
			}
			return out, nil
		}
		var got []string
		offers, err := n.Offers(t.Context())
		for _, f := range offers {
			got = append(got, f.Server.URL)
			if f.FirstInstance != o.FirstInstance || f.LastInstance != o.LastInstance || f.Server.Key != "key" {
				t.Errorf("%s: found %v", c.url, f)
			}
		}
		if err != nil {
			got = []string{"error"}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: found %v, error %v; expected %s", c.url, got, err, c.want)
		}
	}
	if _, _, err := ParseServerOffer("dns+https://llm"); err == nil || !strings.Contains(err.Error(), "expected dns+http://NAME:PORT") {
		t.Error(err)
	}
}
