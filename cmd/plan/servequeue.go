package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"inferplan/engine/llm"
	"inferplan/executor"
	front "inferplan/executor/completions"
	"inferplan/executor/durable"
	"inferplan/executor/durable/bolt"
)

// textOptions are the flags of serve for plans of language models.
type textOptions struct {
	servers   []string
	serverKey string
	queue     string
	keys      string
	silence   time.Duration
}

func (o *textOptions) flags(f *pflag.FlagSet) {
	f.StringArrayVar(&o.servers, "server", nil, "server of an instance of language models: URL of the next instance, N=URL of instance N of the plan, or N/MODEL=URL where an instance has a server for each model (repeatable)")
	f.StringVar(&o.serverKey, "server-key", "", "file with the bearer token that these servers ask for")
	f.StringVar(&o.queue, "queue", "requests.db", "file that keeps the accepted requests of language models")
	f.StringVar(&o.keys, "keys", "", "file with the keys of clients, one a line: TOKEN [name=NAME] [class=CLASS] [rps=N] [burst=N] [open=N]")
	f.DurationVar(&o.silence, "server-silence", 5*time.Second, "how long a server may answer nothing, beside ten times what the plan expects, until its requests go elsewhere")
}

// apply sets what serve is told of language models. token is that of all protocols.
func (o *textOptions) apply(so *executor.ServeOptions, token string) error {
	key, err := readToken(o.serverKey)
	if err != nil {
		return err
	}
	if so.Servers, err = parseServers(o.servers, key); err != nil {
		return usageErrorf("%w", err)
	}
	if err := longer("server-silence", o.silence); err != nil {
		return err
	}
	so.Silence = o.silence
	if token != "" {
		so.Queue.Front.Keys = []front.Key{{Token: token, Name: "token"}}
	}
	if o.keys != "" {
		data, err := os.ReadFile(o.keys)
		if err != nil {
			return withCode(exitUsage, fmt.Errorf("reading the keys: %w", err))
		}
		keys, err := front.ParseKeys(data)
		if err != nil {
			return withCode(exitUsage, fmt.Errorf("%s: %w", o.keys, err))
		}
		so.Queue.Front.Keys = append(so.Queue.Front.Keys, keys...)
	}
	so.Queue.Open = func() (durable.Store, error) {
		s, err := bolt.Open(o.queue, bolt.Options{Log: so.Log})
		if err != nil {
			return nil, withCode(exitUsage, fmt.Errorf("--queue: %w", err))
		}
		return s, nil
	}
	return nil
}

// parseServers reads URL, N=URL and N/MODEL=URL.
func parseServers(list []string, key string) ([]executor.InstanceServer, error) {
	var out []executor.InstanceServer
	next := 0
	for _, text := range list {
		s := executor.InstanceServer{Instance: next, URL: text, Key: key}
		if who, url, named := strings.Cut(text, "="); named && !strings.Contains(who, "://") {
			number, model, _ := strings.Cut(who, "/")
			n, err := strconv.Atoi(number)
			if err != nil || n < 0 {
				return nil, fmt.Errorf("--server %s: expected URL, N=URL or N/MODEL=URL, with the number N of an instance from 0", text)
			}
			s.Instance, s.Model, s.URL = n, model, url
		} else {
			next++
		}
		if _, err := llm.New(s.URL); err != nil {
			return nil, fmt.Errorf("--server %s: %w", text, err)
		}
		out = append(out, s)
	}
	return out, nil
}
