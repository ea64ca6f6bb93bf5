// Package blocks imports block latencies and cut sizes in CSV (formats/importer/blocks) into a profile.
package blocks
