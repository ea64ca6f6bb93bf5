package kubernetes

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"inferplan/formats/document"
)

// parsePerKind reads flags of the form KIND=VALUE, of which each kind has one at most. form names what is expected
// behind KIND=. A kind that is not one of kinds is an error.
func parsePerKind(flag, form string, list, kinds []string) (map[string]string, error) {
	out := map[string]string{}
	for _, text := range list {
		kind, value, ok := strings.Cut(text, "=")
		if !ok || kind == "" || value == "" {
			return nil, fmt.Errorf("--%s: found %q, expected KIND=%s", flag, text, form)
		}
		if !slices.Contains(kinds, kind) {
			return nil, fmt.Errorf("--%s: found kind %q, expected a kind of device on which the plan has workers: %s", flag, kind, document.List(kinds))
		}
		if _, twice := out[kind]; twice {
			return nil, fmt.Errorf("--%s: found %s twice, expected each kind once", flag, kind)
		}
		out[kind] = value
	}
	return out, nil
}

// Forms of names in Kubernetes.
var (
	dnsLabel   = regexp.MustCompile(`^[a-z]([-a-z0-9]*[a-z0-9])?$`)
	labelKey   = regexp.MustCompile(`^([a-z0-9]([-.a-z0-9]*[a-z0-9])?/)?[A-Za-z0-9]([-._A-Za-z0-9]*[A-Za-z0-9])?$`)
	labelValue = regexp.MustCompile(`^[A-Za-z0-9]([-._A-Za-z0-9]*[A-Za-z0-9])?$`)
	imageName  = regexp.MustCompile(`^[a-z0-9]([-._/:a-zA-Z0-9]*[a-zA-Z0-9])?(@sha256:[0-9a-f]{64})?$`)
	natsURL    = regexp.MustCompile(`^(nats|tls)://[-._a-zA-Z0-9]+:[0-9]+(,(nats|tls)://[-._a-zA-Z0-9]+:[0-9]+)*$`)
	notInLabel = regexp.MustCompile(`[^a-z0-9]+`)
)

// Longest names: of objects here, to which endings and the numbers of pods are added, and of label values.
const (
	maxName  = 30
	maxLabel = 63
)

// checkName returns an error if a flag's value is no name that DNS takes, or longer than most.
func checkName(flag, value string, most int) error {
	if len(value) > most || !dnsLabel.MatchString(value) {
		return fmt.Errorf("--%s: found %q, expected at most %d lower-case letters, digits and dashes, the first a letter", flag, value, most)
	}
	return nil
}

// labelID returns a text as a part of names: lower case, and dashes in place of what names cannot have.
func labelID(text string) string {
	return strings.Trim(notInLabel.ReplaceAllString(strings.ToLower(text), "-"), "-")
}

// quantity returns a size as Kubernetes writes it: 4Gi for 4GiB, and bytes where there is no such unit.
func quantity(b document.Bytes) string {
	for _, u := range []struct {
		scale document.Bytes
		name  string
	}{{1 << 30, "Gi"}, {1 << 20, "Mi"}} {
		if b%u.scale == 0 {
			return strconv.FormatInt(int64(b/u.scale), 10) + u.name
		}
	}
	return strconv.FormatInt(int64(b), 10)
}

// parseSize reads the size that a flag gives, of at least least bytes.
func parseSize(flag, text string, least document.Bytes) (document.Bytes, error) {
	size, err := document.ParseBytes(text)
	if err != nil {
		return 0, fmt.Errorf("--%s: %w", flag, err)
	}
	if size < least {
		return 0, fmt.Errorf("--%s: found %s, expected %s or more", flag, text, least)
	}
	return size, nil
}
