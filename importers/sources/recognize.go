package sources

import (
	"strings"

	"inferplan/importers"
)

// Recognize returns the name of the tool's file at path, and the verbs below plan import that read it. The name is
// empty if no importer knows the file.
func Recognize(path string) (name string, verbs []string) {
	head, err := importers.ReadHead(path)
	if err != nil {
		return "", nil
	}
	for _, i := range All() {
		if i.Recognize == nil {
			continue
		}
		if found := i.Recognize(head); found != "" && (name == "" || name == found) {
			verb, _, _ := strings.Cut(i.Usage, " ")
			name, verbs = found, append(verbs, verb)
		}
	}
	return name, verbs
}
