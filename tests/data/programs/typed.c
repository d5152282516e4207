/* A function with parameters of several types, for tests that read debug information. */
#include <stdio.h>
struct point { int x, y; };
static int total;
__attribute__((noinline)) int add(int n, const char *name, struct point *p, double d)
{
	int local = n * 2;

	for (int i = 0; i < n; i++)
		local += i + p->x;
	total += local;
	return local + (int)d + name[0];
}
int main(int argc, char **argv)
{
	struct point p = { argc, 2 };
	printf("%d\n", add(argc, argv[0], &p, 1.5));
	return 0;
}
