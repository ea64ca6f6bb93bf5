package completions

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"inferplan/executor/httplimit"
)

// raw opens a connection and sends what is given.
func (r *rig) raw(text string) net.Conn {
	r.t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(r.http.URL, "http://"))
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := io.WriteString(c, text); err != nil {
		r.t.Fatal(err)
	}
	return c
}

const head = "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 8000000\r\n\r\n"

// What clients promise books nothing, and bodies that do not come are cut off.
func TestSlowBodiesAreCutOff(t *testing.T) {
	budget := httplimit.NewBudget(1<<20, quiet)
	r := start(t, &fake{}, Options{Door: &httplimit.Door{Budget: budget, ReadTimeout: 500 * time.Millisecond, Log: quiet}})
	for range 64 {
		defer r.raw(head).Close()
	}
	settles(t, "the heads have not come", func() bool { return budget.UsedBytes() >= 64*4<<10 })
	if used := budget.UsedBytes(); used > 64*8<<10 {
		t.Errorf("64 heads book %d bytes", used)
	}
	body, want := prompt("hello", 5, "")
	if resp, text := r.do("POST", "/v1/completions", body); resp.StatusCode != 200 || !strings.Contains(text, want) {
		t.Errorf("beside them: %d %s", resp.StatusCode, text)
	}
	settles(t, "they are not cut off", r.idle)
}

// When bodies fill the memory others are told to come again: 429, not 503.
func TestMemoryIsFull(t *testing.T) {
	budget := httplimit.NewBudget(1<<20, quiet)
	budget.Patience = 0
	r := start(t, &fake{}, Options{Door: &httplimit.Door{Budget: budget, Log: quiet}})
	resp, text := r.do("POST", "/v1/completions", `{"model":"m","prompt":"`+strings.Repeat("x", 3<<20)+`"}`)
	if resp.StatusCode != 429 || resp.Header.Get("Retry-After") != "1" || !strings.Contains(text, `"code":"memory"`) {
		t.Errorf("%d %v %s", resp.StatusCode, resp.Header, text)
	}
	settles(t, "something is left", r.idle)
}

// Bodies that are much work for a decoder are refused in few words.
func TestHostileBodiesAreRefused(t *testing.T) {
	r := start(t, &fake{}, Options{})
	many := func(n int, part func(i int) string) string {
		var b strings.Builder
		for i := range n {
			b.WriteString(part(i))
		}
		return b.String()
	}
	for name, body := range map[string]string{
		"fields":   `{"model":"m","prompt":"x"` + many(300_000, func(i int) string { return fmt.Sprintf(`,"f%d":0`, i) }) + "}",
		"nested":   `{"model":"m","prompt":"x","user":` + strings.Repeat("[", 200_000),
		"messages": `{"model":"m","messages":[` + many(200_000, func(int) string { return `{"role":"user","content":"x"},` }) + `{}]}`,
		"prompts":  `{"model":"m","prompt":[` + many(200_000, func(int) string { return `"x",` }) + `""]}`,
		"escapes":  `{"model":"m","prompt":"` + strings.Repeat(`\u0000`, 1_000_000) + `","n":0}`,
		"numbers":  `{"model":"m","prompt":"x","max_tokens":` + strings.Repeat("9", 4_000_000) + "}",
		"words":    strings.Repeat("nul", 2_000_000),
	} {
		resp, text := r.do("POST", "/v1/completions", body)
		if resp.StatusCode/100 != 4 || len(text) > 1000 {
			t.Errorf("%s: %d %.300s", name, resp.StatusCode, text)
		}
	}
	settles(t, "something is left", r.idle)
}

// Many clients at once, each in a hurry to go: nothing stays behind.
func TestHastyClientsLeaveNothingBehind(t *testing.T) {
	f := &fake{every: time.Millisecond}
	r := start(t, f, Options{})
	client := &http.Client{Timeout: 20 * time.Millisecond}
	defer client.CloseIdleConnections()
	done := make(chan bool)
	for i := range 100 {
		go func() {
			defer func() { done <- true }()
			body, _ := prompt(fmt.Sprint(i), 1000, fmt.Sprintf(`,"stream":%t`, i%2 == 0))
			if resp, err := client.Do(r.request("POST", "/v1/completions", body)); err == nil {
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		}()
	}
	for range 100 {
		<-done
	}
	settles(t, "something is left", r.idle)
}
