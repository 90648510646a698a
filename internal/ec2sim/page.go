package ec2sim

import (
	"cmp"
	"encoding/base64"
	"slices"
	"strconv"
	"strings"
)

// minPage is the smallest page size; 0 counts as not given.
const minPage = 5

func indexed(prefix string, i int) string { return prefix + "." + strconv.Itoa(i) }

// page cuts the page that MaxResults and NextToken ask for out of the items,
// and gives the token of the next, nil after the last. Pages are in order of
// key; a token holds the last key it showed, so that things which come and go
// meanwhile neither hide nor repeat others. A larger MaxResults than limit is
// taken for limit.
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/Query-Requests.html#api-pagination
func page[T any](r *request, items []T, key func(T) string, limit int, ids []string, idParam string) ([]T, *string, *APIError) {
	size, _ := r.number("MaxResults")
	token := r.str("NextToken")
	if err := r.err(); err != nil {
		return nil, nil, err
	}
	if size != 0 && size < minPage {
		return nil, nil, refuse("InvalidParameterValue", "Value ( %d ) for parameter maxResults is invalid. Expecting a value greater than %d.", size, minPage)
	}
	if size != 0 && len(ids) > 0 && idParam != "" {
		return nil, nil, refuse("InvalidParameterCombination", "The parameter %s cannot be used with the parameter maxResults", idParam)
	}
	slices.SortFunc(items, func(a, b T) int { return cmp.Compare(key(a), key(b)) })
	if token != "" {
		after, err := readToken(r.action.name, token)
		if err != nil {
			return nil, nil, err
		}
		i, found := slices.BinarySearchFunc(items, after, func(it T, k string) int { return cmp.Compare(key(it), k) })
		if found {
			i++
		}
		items = items[i:]
	}
	n := min(int(size), limit)
	if size == 0 || len(items) <= n {
		return items, nil, nil
	}
	next := base64.URLEncoding.EncodeToString([]byte(r.action.name + "\n" + key(items[n-1])))
	return items[:n], &next, nil
}

func readToken(action, token string) (string, *APIError) {
	raw, err := base64.URLEncoding.DecodeString(token)
	name, after, ok := strings.Cut(string(raw), "\n")
	if err != nil || !ok || name != action {
		return "", refuse("InvalidNextToken", "The specified token '%s' is not valid", token)
	}
	return after, nil
}
