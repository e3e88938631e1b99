"""What a shop keeps."""

from django.db import models
from django.db.models import Q
from django_mongodb_backend.fields import ArrayField, EmbeddedModelArrayField, EmbeddedModelField
from django_mongodb_backend.managers import MongoManager
from django_mongodb_backend.models import EmbeddedModel


class Size(EmbeddedModel):
    width = models.IntegerField()
    height = models.IntegerField()


class Remark(EmbeddedModel):
    stars = models.IntegerField()
    text = models.CharField(max_length=100)


class Maker(models.Model):
    name = models.CharField(max_length=50, unique=True)
    country = models.CharField(max_length=2, db_index=True)

    def __str__(self):
        return self.name


class Label(models.Model):
    word = models.SlugField(unique=True)


class Article(models.Model):
    class Kind(models.TextChoices):
        TOOL = "tool"
        TOY = "toy"

    name = models.CharField(max_length=100)
    kind = models.CharField(max_length=10, choices=Kind)
    maker = models.ForeignKey(Maker, models.CASCADE, related_name="articles")
    labels = models.ManyToManyField(Label, related_name="articles")
    price = models.DecimalField(max_digits=8, decimal_places=2)
    stock = models.IntegerField(default=0)
    on_sale = models.BooleanField(default=True)
    added = models.DateTimeField()
    day = models.DateField(null=True)
    guarantee = models.DurationField(null=True)
    key = models.UUIDField(null=True)
    picture = models.BinaryField(null=True)
    facts = models.JSONField(default=dict)
    codes = ArrayField(models.IntegerField(), default=list)
    size = EmbeddedModelField(Size, null=True)
    remarks = EmbeddedModelArrayField(Remark, null=True)
    objects = MongoManager()

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["maker", "name"], name="one_of_a_name")]
        indexes = [
            models.Index(fields=["kind", "-price"], name="by_kind"),
            models.Index(fields=["stock"], name="in_stock", condition=Q(stock__gt=0)),
        ]

    def __str__(self):
        return self.name


class Order(models.Model):
    user = models.ForeignKey("auth.User", models.PROTECT, related_name="orders")
    placed = models.DateTimeField(auto_now_add=True)


class Line(models.Model):
    order = models.ForeignKey(Order, models.CASCADE, related_name="lines")
    article = models.ForeignKey(Article, models.SET_NULL, null=True, related_name="lines")
    pieces = models.PositiveIntegerField()
